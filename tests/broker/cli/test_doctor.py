"""`rocketlens doctor`: what is printed, and how it ends."""

import json
import shutil
from pathlib import Path

import pytest

from command_line import rocketlens
from protocol.message_layout import locate
from store_writer import StoreWriter


def test_a_clean_store_has_a_picture_and_exit_code_0(g1_store: Path) -> None:
    outcome = rocketlens("doctor", g1_store)
    assert (outcome.code, outcome.errors) == (0, "")
    lines = outcome.text.splitlines()
    assert lines[0].startswith(f"{g1_store}: stopped cleanly; 2 segments, 10 index files, physical offsets 0 to 156014")
    assert [line.split()[0] for line in lines[1:6]] == ["log", "queues", "index", "offset", "time"]
    assert lines[-1] == "nothing is wrong"


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
    named = {"severity", "check", "path", "position", "physicalOffset", "found", "meaning", "remedy", "kind", "more"}
    assert set(finding) == named
    assert report["coverage"]["index"] == [[0, 156014]]
    assert {file["longestChain"] for file in report["indexFiles"]} > {-1}


def test_what_is_no_store_ends_with_3(tmp_path: Path) -> None:
    outcome = rocketlens("doctor", tmp_path)
    assert (outcome.code, outcome.output) == (3, b"")
    assert "is no store that can be served" in outcome.errors


def test_half_of_the_counts_is_a_usage_error(g1_store: Path) -> None:
    outcome = rocketlens("doctor", g1_store, "--index-slots", 97)
    assert outcome.code == 2
    assert "give both or neither" in outcome.errors


@pytest.mark.parametrize("as_json", [True, False])
def test_deep_verifies_too(g1_store: Path, tmp_path: Path, as_json: bool) -> None:
    root = tmp_path / "store"
    shutil.copytree(g1_store, root)
    index = sorted((root / "index").iterdir())[3]
    content = bytearray(index.read_bytes())
    content[40 + 4 * 97 + 20 * 5 + 15] ^= 1  # the time of an entry, which only `verify` compares
    index.write_bytes(content)
    assert rocketlens("doctor", root).code == 0
    outcome = rocketlens("doctor", root, "--deep", *(["--json"] if as_json else []))
    assert outcome.code == 4
    if as_json:
        assert json.loads(outcome.output)["verify"]["details"]["counts"] == {"entry": 1}
    else:
        assert "found: 1 entry" in outcome.text


def test_a_topic_that_is_no_utf_8_stands_in_json_by_its_bytes(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    written = [writer.append("T", b"x") for _ in range(20)]
    place = written[10].physical_offset + locate(memoryview(written[10].record)).topic
    writer.overwrite(place, b"\xff")
    writer.close()
    outcome = rocketlens("doctor", writer.root, "--json")
    assert outcome.code == 0
    findings = json.loads(outcome.output)["findings"]
    (finding,) = (each for each in findings if each["check"] == "queue-reach")
    assert finding["path"] == f"{writer.root}/consumequeue/\\xff/0"
    assert "topic \\xff" in finding["found"]


def test_a_directory_with_a_number_among_the_index_files_is_a_finding(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    writer.append("T", b"x", keys="k")
    writer.close()
    directory = writer.root / "index" / "20260101000000999"
    directory.mkdir()
    outcome = rocketlens("doctor", writer.root, "--json")
    assert (outcome.code, outcome.errors) == (4, "")
    (finding,) = json.loads(outcome.output)["findings"]
    assert (finding["path"], finding["found"]) == (str(directory), "expected an index file, found a directory")
    assert finding["remedy"] == f"move it out of {directory.parent}"
    assert rocketlens("query", writer.root, "--topic", "T", "--key", "k").code == 0


def test_what_is_alike_in_a_thousand_queues_is_one_block(tmp_path: Path) -> None:
    """The log of a crashed disk ends before what all its queues point to."""
    writer = StoreWriter(tmp_path / "store", queue_file_size=1000)
    written = [writer.append("T", b"x", queue_id=number % 1000) for number in range(2000)]
    for each in written[1000:]:
        writer.overwrite(each.physical_offset, bytes(each.size))
    writer.close()
    outcome = rocketlens("doctor", writer.root)
    assert outcome.code == 4
    assert outcome.text.count("warning queues: ") == 1
    end = written[1000].physical_offset
    block = outcome.text[outcome.text.index("warning queues: ") :].splitlines()[:7]
    queue = writer.root / "consumequeue" / "T"
    unit = "unit 1: expected the end of the queue, found a unit that points to no message of this queue"
    assert block[:2] == [
        "warning queues: in 1,000 places",
        f"        {queue}/0/{0:020d}, byte 20, physical offset {end}: {unit}",
    ]
    assert block[4:] == [
        "        and 997 more like these; --json names 20",
        "        means: left over from a log that was cut, or damaged; it is ignored here, a broker may take it for "
        "valid",
        f"        fix: rocketlens rebuild queues {writer.root}",
    ]
