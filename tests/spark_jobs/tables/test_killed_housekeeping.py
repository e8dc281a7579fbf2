"""Runs that drop days and put files together, killed at each of their steps: each message once."""

import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from column_rows import expected_rows
from dying import STRIDES, every_death
from exported_files import DAY, append
from lake_tables import Lake
from spark_jobs.places.output_place import OutputPlace
from store_writer import START_TIMESTAMP, StoreWriter

COLUMNS = ("physical_offset", "unique_key", "store_timestamp")
OPTIONS = {"partition_by": ("date",), "columns": COLUMNS}
KEEP_HOUSE = {
    "drop_before": f"{datetime.fromtimestamp((START_TIMESTAMP + DAY) / 1000, UTC).date()}",
    "compact_bytes": 1 << 20,
}


@dataclass(frozen=True)
class Case:
    """A table of two runs, without the last messages of the log; `old` is the store that it was made of."""

    lake: Lake
    old: StoreWriter
    store: StoreWriter
    saved: Path

    def restore(self) -> None:
        table = Path(self.lake.place.url.removeprefix("file://"))
        for child in table.iterdir():
            shutil.rmtree(child) if child.is_dir() else child.unlink()
        shutil.copytree(self.saved, table, dirs_exist_ok=True)

    def keep_house(self, store: StoreWriter) -> None:
        append(store, self.lake.place, **self.lake.options, **OPTIONS, **KEEP_HOUSE)

    def seen(self) -> list[int]:
        return [row["physical_offset"] for row in self.lake.rows()]

    def check_leftovers(self, death: str) -> None:
        """There is a file for each day, and nothing else of what the killed run wrote."""
        assert self.lake.left_of_runs() == set(), death
        assert self.lake.never_named_files() == set(), death
        days = {Path(name).parent.name for name in self.lake.files()}
        assert len(self.lake.files()) == len(days) == 2, death


@pytest.fixture
def case(tmp_path: Path, format_: str) -> Case:
    store = StoreWriter(tmp_path / "store", segment_size=4096)
    copies: list[StoreWriter] = []
    written = 0
    for end in (30, 36, 40):
        for number in range(written, end):
            timestamp = START_TIMESTAMP + min(number // 12, 2) * DAY + number
            store.append("Orders", b"body", unique_key=f"U{number}", store_timestamp=timestamp)
        store.flush()
        copies.append(StoreWriter(tmp_path / f"unused{end}"))
        copies[-1].root = tmp_path / f"store{end}"
        shutil.copytree(store.root, copies[-1].root)
        written = end
    table = tmp_path / "table"
    lake = Lake(format_, OutputPlace(f"file://{table}"))
    for each in copies[:2]:
        append(each, lake.place, **lake.options, **OPTIONS)
    shutil.copytree(table, tmp_path / "saved")
    return Case(lake, copies[1], store, tmp_path / "saved")


@pytest.mark.parametrize("each", STRIDES)
@pytest.mark.parametrize("format_", ["jsonl", "delta", pytest.param("iceberg", marks=pytest.mark.soak)])
def test_at_whichever_step_housekeeping_dies_the_next_run_leaves_each_message_once(case, monkeypatch, each) -> None:
    every = [(row["physical_offset"], row["store_timestamp"]) for row in expected_rows(case.store.records)]
    keys = [offset for offset, _ in every]
    kept = [offset for offset, stored in every if stored // DAY > START_TIMESTAMP // DAY]
    assert (len(keys), len(kept)) == (40, 28)

    def work() -> None:
        case.restore()
        case.keep_house(case.old)

    deaths = []
    for death in every_death(work, monkeypatch, each):
        seen = case.seen()
        assert seen == sorted(set(seen)), death
        if case.lake.format == "jsonl":  # a reader of the directory may miss some for a while
            assert set(seen) <= set(keys[:36]), death
        else:
            assert seen in (keys[:36], kept[:24]), death
        case.keep_house(case.store)
        assert case.seen() == kept, death
        case.check_leftovers(death)
        deaths.append(death)
    assert len(deaths) >= 2 * 9 // each, deaths
