"""A BLANK of any size at any place hides no record: whatever goes over a segment decides alike which one counts."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import damage_oracle
import oracles
from blanks import LENGTH, MAGIC, Blanked, blanked_segments
from column_rows import read_rows
from examples import examples
from kernel_memory import record_at
from storage.index.index_file import ENTRY_DTYPE
from storage.index.tail_index import empty_tail, extend_tail
from storage.kernels.records import AT_DAMAGE, AT_RECORD, find_record, find_record_by_entries
from storage.log.commit_log import CommitLog, Segment
from storage.log.damaged_ranges import find_damaged_ranges
from storage.queue._log_search import search
from storage.queue.queue_record import QueueName
from storage.search.chunk import Chunk, Searcher
from storage.search.criteria import Criteria
from storage.search.matcher import Matcher
from storage.search.query import query_of


def by_index(log: CommitLog, segment: Segment, blanked: Blanked) -> list[int]:
    """What the server's own index of the log has of the keys that were written."""
    tail = extend_tail(empty_tail([(segment.base_offset, segment.end)]), log, 1 << 30)
    keys = [f"TopicTest#k{number}" for number in range(20)]
    return [offset for key in keys for offset in tail.offsets_of(oracles.index_hash(key))]


def by_queue_offset(log: CommitLog, segment: Segment, blanked: Blanked) -> list[int]:
    """Messages that are looked for in the log since no unit leads to them."""
    name = QueueName("TopicTest", 1)
    found = [search(log, name, number, segment.base_offset, segment.end) for number in range(20)]
    return [offset for offset in found if offset is not None]


def by_search(log: CommitLog, segment: Segment, blanked: Blanked) -> list[int]:
    """What a content search finds, which wants everything."""
    matcher = Matcher(Criteria())
    searcher = Searcher(matcher, query_of(matcher), lambda: False)
    return [offset for offset, _ in searcher.run(Chunk(segment, segment.base_offset, segment.end)).found]


def by_coverage(log: CommitLog, segment: Segment, blanked: Blanked) -> list[int]:
    """Records of which an index file without an entry lacks the keys."""
    region, base, found, position = segment.file.region, segment.base_offset, list[int](), 0
    none, stop = np.empty(0, ENTRY_DTYPE), segment.valid_length
    while position < stop:
        lacking = find_record_by_entries(region, position, stop, stop, base, segment.boundary, none, 1, True, False)
        position = lacking.position
        if lacking.reason == AT_DAMAGE:
            position = find_record(region, position + 1, stop, base)
        elif lacking.reason == AT_RECORD:
            found.append(base + position)
            position += int.from_bytes(segment.file.view[position : position + 4])
        else:
            break
    return found


def by_rows(log: CommitLog, segment: Segment, blanked: Blanked) -> list[int]:
    """What Spark's data source, an export and a diff read."""
    is_last, boundary = not blanked.has_next, segment.boundary
    rows, _ = read_rows(segment.file.path, segment.base_offset, is_last=is_last, boundary=boundary)
    return [row["physical_offset"] for row in rows]


READERS = [by_index, by_queue_offset, by_search, by_coverage, by_rows]


def opened(blanked: Blanked, directory: Path) -> tuple[CommitLog, Segment]:
    path = blanked.write(directory)
    log = CommitLog.open([directory])
    return log, next(segment for segment in log.segments if segment.file.path == path)


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(blanked=blanked_segments())
def test_all_intact_records_are_found_whatever_blanks_say(
    blanked: Blanked, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if not blanked.records:
        return
    log, segment = opened(blanked, tmp_path_factory.mktemp("log"))
    found = {reader.__name__: sorted(reader(log, segment, blanked)) for reader in READERS}
    assert found == {reader.__name__: blanked.offsets for reader in READERS}
    assert [log.record_at(offset) is not None for offset in blanked.offsets] == [True] * len(blanked.offsets)


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(blanked=blanked_segments())
def test_what_is_no_blank_is_damage_and_named_as_such(
    blanked: Blanked, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if not blanked.records:
        return
    log, segment = opened(blanked, tmp_path_factory.mktemp("log"))
    place = segment.file, segment.base_offset, 0, segment.valid_length, segment.boundary
    named = [(damage.start, damage.stop) for damage in find_damaged_ranges(*place)]
    if blanked.has_next:
        assert named == blanked.damage
    else:
        end, damage = damage_oracle.valid_end(blanked.data, blanked.base, length=LENGTH)
        assert (segment.valid_length, named) == (end, damage)
        assert [(each.start, each.stop) for each in log.damage] == damage


class TestSizeOfSegments:
    """Where a BLANK must lead is known even if the file was cut behind it."""

    BLANK_AT = len(record_at(0, keys="k0"))

    def closed(self, length: int = LENGTH, base: int = 3 * LENGTH) -> bytes:
        return record_at(base, keys="k0") + oracles.packed(length - self.BLANK_AT, 4) + MAGIC

    @pytest.mark.parametrize("has_next", [False, True])
    def test_a_file_that_was_cut_behind_its_blank_is_closed(self, tmp_path: Path, has_next: bool) -> None:
        log, segment = opened(Blanked(3 * LENGTH, self.closed(), True, has_next), tmp_path)
        assert (log.damage, log.torn_end, segment.boundary) == ((), None, 4 * LENGTH)
        assert (
            list(find_damaged_ranges(segment.file, segment.base_offset, 0, segment.file.size, segment.boundary)) == []
        )

    def test_a_segment_that_is_alone_says_its_size_itself(self, tmp_path: Path) -> None:
        log, segment = opened(Blanked(3 * LENGTH, self.closed(), False, False), tmp_path)
        assert (log.end, log.torn_end, segment.boundary) == (3 * LENGTH + self.BLANK_AT, None, 4 * LENGTH)

    @pytest.mark.parametrize("length", [LENGTH - 1, LENGTH + 8, 5 * LENGTH, 2**31 - 1])
    def test_but_no_size_that_no_segment_has(self, tmp_path: Path, length: int) -> None:
        log, _ = opened(Blanked(3 * LENGTH, self.closed(length), False, False), tmp_path)
        assert log.torn_end is not None
        assert "it is a BLANK" in log.torn_end.sentence()
