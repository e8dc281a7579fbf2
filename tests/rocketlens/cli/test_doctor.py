"""`rocketlens doctor`: what is printed, and how it ends."""

import json
import shlex
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_harness import FakeStore, service_of, serving_in_a_thread
from command_line import rocketlens
from name_server import NamedBrokers
from storage.store.message_store import MessageStore
from store_writer import StoreWriter


def test_findings_have_a_place_a_meaning_a_command_and_exit_code_4(g1_crashed_store: Path) -> None:
    outcome = rocketlens("doctor", g1_crashed_store)
    assert (outcome.code, outcome.errors) == (4, "")
    text = outcome.text
    assert f"warning liveness: {g1_crashed_store}/abort\n" in text
    assert "        means: a broker that starts here" in text
    assert f"        fix: rocketlens rebuild index {g1_crashed_store}\n" in text
    assert text.endswith("0 errors, 1 warning, 0 notes\n")


def test_a_program_gets_one_object(g1_crashed_store: Path) -> None:
    outcome = rocketlens("doctor", g1_crashed_store, "--json")
    assert outcome.code == 4
    report = json.loads(outcome.output)
    assert (report["state"], report["isClean"], report["exitCode"]) == ("crashed", False, 4)
    (finding,) = report["findings"]
    assert finding["severity"] == "warning"
    assert finding["kind"] == "broker"
    place = {"check", "path", "place", "position", "physicalOffset"}
    said = {"severity", "kind", "known", "expected", "found", "meaning", "remedy", "count", "more"}
    assert set(finding) == place | said
    assert report["coverage"]["index"] == [[0, 156014]]
    assert {file["longestChain"] for file in report["indexFiles"]} > {-1}


def with_a_wrong_time(g1_store: Path, root: Path) -> Path:
    """A store in which only a reading of everything finds something: the time of an index entry."""
    shutil.copytree(g1_store, root)
    index = sorted((root / "index").iterdir())[3]
    content = bytearray(index.read_bytes())
    content[40 + 4 * 97 + 20 * 5 + 15] ^= 1
    index.write_bytes(content)
    return index


def test_deep_reads_every_entry(g1_store: Path, tmp_path: Path) -> None:
    root = tmp_path / "store"
    index = with_a_wrong_time(g1_store, root)
    assert rocketlens("doctor", root).text.endswith("\nnothing is wrong\n")
    outcome = rocketlens("verify", root, "--json")
    assert outcome.code == 4
    report = json.loads(outcome.output)
    (finding,) = report["findings"]
    assert (finding["kind"], finding["known"], finding["path"]) == ("entry", "read", str(index))
    assert finding["remedy"] == f"rocketlens rebuild index --from-offset 0 {root}"
    assert (report["isClean"], report["exitCode"]) == (False, 4)
    assert report["verify"]["details"]["counts"] == {"entry": 1}
    assert "findings" not in report["verify"]["details"]


@settings(max_examples=settings.default.max_examples // 20)
@given(number=st.integers(0, 9), entry=st.integers(1, 60), byte=st.integers(0, 19))
def test_what_a_reading_finds_in_an_index_file_the_printed_line_mends(
    g1_store: Path, number: int, entry: int, byte: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(shutil.copytree(g1_store, Path(directory) / "store"))
        index = sorted((root / "index").iterdir())[number]
        content = bytearray(index.read_bytes())
        content[40 + 4 * 97 + 20 * entry + byte] ^= 1
        index.write_bytes(content)
        report = json.loads(rocketlens("doctor", "--deep", root, "--json").output)
        lines = {each["remedy"] for each in report["findings"]}
        for line in lines:
            assert rocketlens(*shlex.split(line)[1:]).code == 0
        after = rocketlens("doctor", "--deep", root)
        assert (after.code, after.text.splitlines()[-1]) == (0, "nothing is wrong"), (lines, after.text)


@pytest.mark.parametrize("as_json", [True, False])
def test_what_ends_the_reading_leaves_what_was_found_before_it(
    g1_crashed_store: Path, tmp_path: Path, as_json: bool
) -> None:
    work = tmp_path / "file" / "work"  # it cannot be made
    work.parent.touch()
    outcome = rocketlens("doctor", g1_crashed_store, "--deep", "--work", work, *(["--json"] if as_json else []))
    assert outcome.code == 2
    assert outcome.errors.startswith("rocketlens: ")
    if as_json:
        report = json.loads(outcome.output)
        assert [each["kind"] for each in report["findings"]] == ["broker"]
        assert (report["verify"], report["isClean"], report["exitCode"]) == (None, False, 2)
    else:
        assert f"warning liveness: {g1_crashed_store}/abort\n" in outcome.text
        assert outcome.text.endswith("0 errors, 1 warning, 0 notes; not everything was read\n")


def test_what_is_alike_in_a_hundred_queues_is_one_block(tmp_path: Path) -> None:
    """The log of a crashed disk ends, in its only segment, before what all its queues point to."""
    writer = StoreWriter(tmp_path / "store", queue_file_size=1000, segment_size=1 << 20)
    written = [writer.append("T", b"x", queue_id=number % 100) for number in range(200)]
    for each in written[100:]:
        writer.overwrite(each.physical_offset, bytes(each.size))
    writer.close()
    outcome = rocketlens("doctor", writer.root)
    assert outcome.code == 4
    assert outcome.text.count("warning queues: ") == 1
    end = written[100].physical_offset
    block = outcome.text[outcome.text.index("warning queues: ") :].splitlines()[:7]
    queue = writer.root / "consumequeue" / "T"
    unit = "expected the end of the queue, found a unit that points to no message of this queue"
    assert block[:2] == [
        "warning queues: in 100 places",
        f"        {queue}/0/{0:020d}, unit 1, byte 20, physical offset {end}: {unit}",
    ]
    assert block[4:] == [
        "        and 97 more like these; --json names 20",
        "        means: left over from a log that was cut, or damaged; it is ignored here, a broker may take it for "
        "valid",
        f"        fix: rm {writer.root}/checkpoint && rocketlens rebuild all {writer.root}",
    ]


def test_a_server_looks_at_its_own_store(g1_crashed_store: Path) -> None:
    with (
        serving_in_a_thread(service_of(MessageStore.open(g1_crashed_store))) as address,
        serving_in_a_thread(service_of(FakeStore()), [NamedBrokers(a=address)]) as name_server,
    ):
        outcome, here = (rocketlens("doctor", place, "--json") for place in (name_server, g1_crashed_store))
    assert outcome.code == here.code == 4
    assert outcome.errors == f"rocketlens: looked at by {address}: paths and commands are those of its machine\n"
    reports = [json.loads(each.output) | {"seconds": 0} for each in (outcome, here)]
    assert reports[0] == reports[1]


def test_what_a_server_is_not_asked_is_wrong_usage() -> None:
    with serving_in_a_thread(service_of(FakeStore()), []) as address:
        for options, says in (
            (("--deep",), "are not for a server"),
            (("--index-slots", 5, "--index-entries", 5), "are not for a server"),
            (("--tls-key", "k"), "need --tls-cert"),
            ((), "`doctor`: of all brokers a RocketLens server alone answers it"),
        ):
            outcome = rocketlens("doctor", address, *options)
            assert (outcome.code, outcome.output) == (2, b"")
            assert says in outcome.errors
