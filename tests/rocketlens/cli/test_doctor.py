"""`rocketlens doctor` and `rocketlens diff`: what is printed, and how they end."""

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
from store_writer import StoreWriter


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


@pytest.mark.soak  # in each run: the finding of one byte, above
@settings(max_examples=15)
@given(number=st.integers(0, 9), entry=st.integers(1, 60), byte=st.integers(0, 19))
def test_what_a_reading_finds_in_an_index_file_the_printed_line_mends(g1_store, number, entry, byte) -> None:
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
def test_what_ends_the_reading_leaves_what_was_found_before_it(g1_crashed_store, tmp_path, as_json) -> None:
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
    first = f"        {queue}/0/{0:020d}, unit 1, byte 20, physical offset {end}: {unit}"
    assert block[:2] == ["warning queues: in 100 places", first]
    ignored = "left over from a log that was cut, or damaged; it is ignored here, a broker may take it for valid"
    fix = f"rm {writer.root}/checkpoint && rocketlens rebuild all {writer.root}"
    said = "and 97 more like these; --json names 20", f"means: {ignored}", f"fix: {fix}"
    assert block[4:] == [f"        {each}" for each in said]


def test_what_a_server_is_not_asked_is_wrong_usage() -> None:
    with serving_in_a_thread(service_of(FakeStore()), []) as address:
        server_alone = "`doctor`: of all brokers a RocketLens server alone answers it"
        for options, says in {
            ("--deep",): "are not for a server", ("--index-slots", 5, "--index-entries", 5): "are not for a server",
            ("--tls-key", "k"): "need --tls-cert", (): server_alone,
        }.items():  # fmt: skip
            outcome = rocketlens("doctor", address, *options)
            assert (outcome.code, outcome.output) == (2, b"")
            assert says in outcome.errors


def test_a_difference_is_a_table_and_a_sentence_or_one_object_for_a_program(tmp_path) -> None:
    writer = StoreWriter(tmp_path / "a")
    for number in range(8):
        writer.append("Orders", b"body %d" % number)
    writer.flush()
    shutil.copytree(writer.root, tmp_path / "b")
    writer.append("Orders", b"more")
    writer.append("Pay\x1bments", b"more")
    writer.close()
    (segment,) = (tmp_path / "b" / "commitlog").iterdir()
    with segment.open("r+b") as file:
        file.seek(writer.written[3].physical_offset + 90)
        file.write(b"#")
    stores = writer.root, tmp_path / "b"
    outcome = rocketlens("diff", *stores)
    assert outcome.code == 1
    assert "3 messages are missing in B, 0 extra, 0 different" in outcome.text
    assert "first: missing, Orders queue 0 offset 3, at physical offset" in outcome.text
    rows = [line.split()[:6] for line in outcome.text.splitlines()[1:3]]
    assert rows == [["missing", "Orders", "0", each, each, "1"] for each in ("3", "8")]
    assert "\x1b" not in outcome.text
    assert "rocketlens: B: " in outcome.errors
    assert "its body does not match its CRC" in outcome.errors
    outcome = rocketlens("diff", *stores, "--json", "--work", tmp_path / "work")
    found = json.loads(outcome.output)
    assert (outcome.code, found["equal"], found["missing"], found["extra"], found["different"]) == (1, False, 3, 0, 0)
    assert [(each["topic"], each["first"], each["last"]) for each in found["ranges"]] == [
        ("Orders", 3, 3), ("Orders", 8, 8), ("Pay\x1bments", 0, 0),
    ]  # fmt: skip
    assert found["first"] == found["ranges"][0]
    assert set(found["first"]) == {"kind", "topic", "queueId", "first", "last", "count", "physicalOffset"}
    assert found["a"]["end"] > found["b"]["end"]
    assert len(found["b"]["damage"]) == 1
