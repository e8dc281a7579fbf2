"""`rocketlens diff` in this process: its output and its exit code."""

import json
import shutil
from pathlib import Path

import pytest

from command_line import rocketlens
from store_writer import StoreWriter


@pytest.fixture
def stores(tmp_path: Path) -> tuple[Path, Path]:
    """A store, and a copy that lacks two messages and has a damaged one."""
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
    return writer.root, tmp_path / "b"


def test_a_difference_is_a_table_and_a_sentence(stores: tuple[Path, Path]) -> None:
    outcome = rocketlens("diff", *stores)
    assert outcome.code == 1
    assert "3 messages are missing in B, 0 extra, 0 different" in outcome.text
    assert "first: missing, Orders queue 0 offset 3, at physical offset" in outcome.text
    assert [line.split()[:6] for line in outcome.text.splitlines()[1:3]] == [
        ["missing", "Orders", "0", "3", "3", "1"],
        ["missing", "Orders", "0", "8", "8", "1"],
    ]
    assert "\x1b" not in outcome.text
    assert "rocketlens: B: " in outcome.errors
    assert "its body does not match its CRC" in outcome.errors


def test_a_program_gets_one_object(stores: tuple[Path, Path]) -> None:
    outcome = rocketlens("diff", *stores, "--json")
    found = json.loads(outcome.output)
    assert (outcome.code, found["equal"], found["missing"], found["extra"], found["different"]) == (1, False, 3, 0, 0)
    assert [(each["topic"], each["first"], each["last"]) for each in found["ranges"]] == [
        ("Orders", 3, 3), ("Orders", 8, 8), ("Pay\x1bments", 0, 0),
    ]  # fmt: skip
    assert found["first"] == found["ranges"][0]
    assert set(found["first"]) == {"kind", "topic", "queueId", "first", "last", "count", "physicalOffset"}
    assert found["a"]["end"] > found["b"]["end"]
    assert len(found["b"]["damage"]) == 1


def test_equal_stores_are_equal(stores: tuple[Path, Path]) -> None:
    outcome = rocketlens("diff", stores[0], stores[0])
    assert (outcome.code, outcome.text, outcome.errors) == (0, "both hold the same messages\n", "")


def test_a_place_that_takes_no_files_is_wrong_usage(stores: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    outcome = rocketlens("diff", *stores, "--work", tmp_path / "file")
    assert (outcome.code, "cannot be written to" in outcome.errors) == (2, True)
