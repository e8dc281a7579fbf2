"""What the doctor calls cleared by a broker's start, an official broker clears; what it leaves, has another remedy."""

from pathlib import Path

import pytest

from interop.official_broker import official_broker
from storage.doctor.examine import examine
from storage.doctor.finding import CLEARED_BY_A_START, Finding
from store_writer import StoreWriter

pytestmark = pytest.mark.interop

PROPERTIES = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "97",
    "maxIndexNum": "150",
}


def crashed_disk(root: Path) -> None:
    """A store whose broker died: messages have no units, and the last ones are gone while units and index have them."""
    writer = StoreWriter(root, segment_size=1 << 20, queue_file_size=20000, index_slots=97, index_entries=150)
    for number in range(200):
        writer.append(f"T{number % 5}", b"body", keys=f"k{number}", unique_key=f"u{number}")
    for number in range(40):
        writer.append(f"T{number % 3}", b"late", keys=f"q{number}", unique_key=f"q{number}", queue=False)
    gone = [writer.append(f"T{3 + number % 2}", b"later", keys=f"l{number}") for number in range(40)]
    for each in gone:
        writer.overwrite(each.physical_offset, bytes(each.size))
    writer.crash()


def cleared(root: Path) -> set[tuple[str, str, int]]:
    return {place(finding) for finding in examine(root).findings if finding.remedy == CLEARED_BY_A_START}


def place(finding: Finding) -> tuple[str, str, int]:
    return finding.check, finding.path, finding.position


def test_an_official_broker_that_starts_clears_what_is_said_of_it(tmp_path: Path) -> None:
    root = tmp_path / "store"
    crashed_disk(root)
    before = cleared(root)
    assert {check for check, *_ in before} == {"checkpoint", "queue-reach"}
    with official_broker(root, tmp_path / "broker", properties=PROPERTIES) as broker:
        broker.stop()
    assert before.isdisjoint(map(place, examine(root).findings))
