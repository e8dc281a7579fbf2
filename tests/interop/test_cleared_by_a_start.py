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


def crashed_disk(root: Path, *, lags: bool) -> None:
    """A store whose broker died: its last messages have no units, or they are gone while units and index have them."""
    writer = StoreWriter(root, segment_size=1 << 20, queue_file_size=20000, index_slots=97, index_entries=150)
    for number in range(200):
        writer.append(f"T{number % 5}", b"body", keys=f"k{number}", unique_key=f"u{number}")
    late = [
        writer.append(f"T{number % 5}", b"late", keys=f"l{number}", unique_key=f"l{number}", queue=not lags)
        for number in range(40)
    ]
    for each in () if lags else late:
        writer.overwrite(each.physical_offset, bytes(each.size))
    writer.crash()


def cleared(root: Path) -> set[tuple[str, str, int]]:
    return {place(finding) for finding in examine(root).findings if finding.remedy == CLEARED_BY_A_START}


def place(finding: Finding) -> tuple[str, str, int]:
    return finding.check, finding.path, finding.position


@pytest.mark.soak  # in each run: that it is said of these, tests/storage/doctor
@pytest.mark.parametrize(("lags", "check"), [(True, "queue-reach"), (False, "checkpoint")])
def test_an_official_broker_that_starts_clears_what_is_said_of_it(tmp_path: Path, lags: bool, check: str) -> None:
    root = tmp_path / "store"
    crashed_disk(root, lags=lags)
    before = cleared(root)
    assert check in {name for name, *_ in before}
    with official_broker(root, tmp_path / "broker", properties=PROPERTIES) as broker:
        broker.stop()
    assert before.isdisjoint(map(place, examine(root).findings))
