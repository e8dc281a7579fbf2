"""Scanned entries become an index file: which of them, and in which bytes."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oracles
from examples import examples
from kept_store import written
from storage.build import spill
from storage.build.spill import choose_ranges, write_index_file
from storage.index.tail_index import TailIndex, empty_tail, extend_tail
from storage.log.commit_log import CommitLog
from storage.ranges import Ranges, intersect, total_length
from storage.store.message_store import MessageStore
from store_writer import StoreWriter

SLOTS = 13


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> StoreWriter:
    return written(tmp_path_factory.mktemp("spill"), 60)


@pytest.fixture(scope="module")
def log(writer: StoreWriter) -> CommitLog:
    return MessageStore.open(writer.root).commit_log


def scanned(log: CommitLog, ranges: Ranges, steps: int = 1) -> TailIndex:
    """A tail of some ranges, scanned in so many steps."""
    tail = empty_tail(ranges)
    for _ in range(steps):
        tail = extend_tail(tail, log, total_length(ranges) // steps + 1)
    return extend_tail(tail, log, 1 << 40)


def entries_of(path: Path) -> list[tuple[int, int]]:
    """Hash and physical offset of each entry, in the file's order."""
    data = path.read_bytes()
    count = oracles.signed(data, 36, 4) - 1
    assert oracles.first_bad_entry(data, SLOTS, count) == 0
    places = [40 + 4 * SLOTS + 20 * number for number in range(1, count + 1)]
    return [(oracles.signed(data, at, 4), oracles.signed(data, at + 4, 8)) for at in places]


def right_entries(writer: StoreWriter, ranges: Ranges) -> list[tuple[int, int]]:
    """What the oracle puts into an index for the records that start in some ranges."""
    records = [record for record in writer.records if any(a <= record.physical_offset < b for a, b in ranges)]
    builder = oracles.IndexBuilder(SLOTS, 10_000, "5.5")
    for record in records:
        builder.dispatch(record)
    return [(entry[0], entry[1]) for image in builder.files for entry in image.entries]


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_file_holds_what_its_ranges_have_in_the_order_of_the_log(
    data: st.DataObject, writer: StoreWriter, log: CommitLog, tmp_path: Path
) -> None:
    bounds = sorted(data.draw(st.sets(st.integers(0, log.end), min_size=2, max_size=6)))
    ranges = tuple(zip(bounds[::2], bounds[1::2], strict=False))
    tail = scanned(log, ranges, data.draw(st.integers(1, 5)))
    entries = data.draw(st.integers(2, 300))
    stop = data.draw(st.integers(0, log.end))
    chosen = choose_ranges(tail, log, stop, entries)
    right = right_entries(writer, chosen)
    assert len(right) < entries
    assert intersect(chosen, ranges) == chosen
    possible = right_entries(writer, intersect(ranges, [(0, stop)]))
    assert possible[: len(right)] == right
    following = [offset for _, offset in possible[len(right) :]]  # all keys of a record go together
    assert not following or len(right) + following.count(following[0]) >= entries
    if not chosen:
        return
    assert chosen[-1][1] - 1 == right[-1][1]
    path = tmp_path / "file"
    path.unlink(missing_ok=True)
    write_index_file(path, tail, chosen, SLOTS, 400)
    assert sorted(entries_of(path)) == sorted(right)
    assert [offset for _, offset in entries_of(path)] == [offset for _, offset in right]
    assert path.stat().st_size == 40 + 4 * SLOTS + 20 * 400


@pytest.mark.parametrize(("at_once", "longest"), [(1, 1 << 32), (5, 1 << 32), (1 << 20, 1000)])
def test_however_it_is_cut_into_stretches_it_is_the_same_file(
    writer: StoreWriter, log: CommitLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int, longest: int
) -> None:
    tail = scanned(log, ((0, log.end),), 3)
    write_index_file(tmp_path / "one", tail, ((0, log.end),), SLOTS, 400)
    monkeypatch.setattr(spill, "ENTRIES_AT_ONCE", at_once)
    monkeypatch.setattr(spill, "LONGEST_STRETCH", longest)
    write_index_file(tmp_path / "other", tail, ((0, log.end),), SLOTS, 400)
    assert (tmp_path / "other").read_bytes() == (tmp_path / "one").read_bytes()


def test_what_is_not_scanned_yet_is_not_chosen(log: CommitLog) -> None:
    tail = extend_tail(empty_tail([(0, log.end)]), log, log.end // 2)
    chosen = choose_ranges(tail, log, log.end, 10_000)
    assert chosen
    assert chosen == intersect(chosen, tail.known)
    assert choose_ranges(empty_tail([(0, log.end)]), log, log.end, 10_000) == ()
