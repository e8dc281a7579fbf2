"""The files of a queue: what is said of one that is lost, which units are, and which are written, against a loop."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import StoreError
from storage.doctor.queues import unit_files
from storage.doctor.queues.unit_files import KINDS, UnitFiles
from storage.queue.batch_consume_queue import UNIT_DTYPE as BATCH_UNIT_DTYPE
from storage.queue.consume_queue import UNIT_DTYPE
from storage.queue.queue_files import UNITS_OF_BATCHES, UNITS_OF_PLAIN


@pytest.mark.parametrize(
    ("dtype", "named", "lost"),
    [
        (np.dtype(UNIT_DTYPE), UNITS_OF_PLAIN, "queue offsets 50 to 99"),
        (np.dtype(BATCH_UNIT_DTYPE), UNITS_OF_BATCHES, "units 50 to 99"),
    ],
)
def test_a_lost_file_is_named_by_what_it_held(tmp_path: Path, dtype: np.dtype[Any], named: str, lost: str) -> None:
    for number in (0, 2):
        (tmp_path / f"{50 * number * dtype.itemsize:020d}").write_bytes(bytes(50 * dtype.itemsize))
    files = UnitFiles(tmp_path, dtype, named)
    assert [(fault.path, *fault.words) for fault in files.faults()] == [(tmp_path, f"a file that holds {lost}", "none")]
    assert files.problems == {}


UNITS = {"valid": (5, 10, 0), "lost": (-1, 3, 7), "zeros": (0, 0, 0)}
FILE = 10
"""Units of a file."""


def write_units(directory: Path, kinds: Sequence[str]) -> UnitFiles:
    units = np.array([UNITS[kind] for kind in kinds], UNIT_DTYPE)
    for first in range(0, len(units), FILE):
        part = units[first : first + FILE].tobytes()
        with (directory / f"{first * np.dtype(UNIT_DTYPE).itemsize:020d}").open("wb") as file:
            file.write(part.rstrip(b"\0"))
            file.truncate(len(part))
    return UnitFiles(directory, *KINDS["consumequeue"])


@pytest.mark.parametrize("piece", [3, 1 << 16])
@given(kinds=st.lists(st.sampled_from(sorted(UNITS)), min_size=1, max_size=35), place=st.integers(0, 40))
def test_lost_units_and_the_first_written_one_are_those_of_a_loop(
    tmp_path_factory: pytest.TempPathFactory, piece: int, kinds: list[str], place: int
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(unit_files, "_PIECE", piece)
        files = write_units(tmp_path_factory.mktemp("queue"), kinds)
        lost = [number for first, count in files.lost_before(place) for number in range(first, first + count)]
        assert lost == [number for number, kind in enumerate(kinds[:place]) if kind != "valid"]
        written = [number for number, kind in enumerate(kinds) if kind != "zeros" and number >= place]
        found = files.first_written(place)
        assert ([] if found is None else [found[0]]) == written[:1]
        assert found is None or found[1].tolist() == [UNITS[kinds[written[0]]]]
    assert files.problems == {}


def test_a_file_that_cannot_be_read_is_named_and_its_units_are_not_called_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = write_units(tmp_path, ["valid"] * 3)

    def refuse(path: Path) -> int:
        raise StoreError(path, what="cannot be opened")

    monkeypatch.setattr(unit_files, "open_read_only", refuse)
    assert list(files.lost_before(3)) == []
    assert [(path.name, expected) for path, expected in files.problems] == [(f"{0:020d}", "a file that can be read")]
