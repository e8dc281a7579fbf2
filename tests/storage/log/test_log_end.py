"""Where a log's valid data end, whatever a crash left behind: damage, leftovers, BLANKs (store-format §6.4, §6.6)."""

import shutil
from functools import partial

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import damage_oracle
import oracles
from blanks import LENGTH, blanked_segments
from column_rows import read_rows
from examples import examples
from storage.index.index_file import ENTRY_DTYPE
from storage.index.tail_index import empty_tail, extend_tail
from storage.kernels.records import AT_DAMAGE, AT_RECORD, find_record, find_record_by_entries
from storage.log.commit_log import CommitLog
from storage.log.damaged_ranges import find_damaged_ranges
from storage.queue._log_search import search
from storage.queue.queue_place import has_another
from storage.queue.queue_record import QueueName
from storage.search.chunk import Chunk, Searcher
from storage.search.criteria import Criteria
from storage.search.matcher import Matcher
from storage.search.query import query_of
from store_files import write_file
from store_writer import START_TIMESTAMP, StoreWriter


class TestEnd:
    """ "End = first failure" in "the last segment whose first 8 bytes are not zero"."""

    @settings(max_examples=examples(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.data())
    def test_a_log_cut_anywhere_ends_where_the_oracle_stops(self, data, tmp_path_factory) -> None:
        root = tmp_path_factory.mktemp("cut")
        writer = StoreWriter(root, segment_size=2048)
        for _ in range(data.draw(st.integers(1, 8))):
            writer.append("T", data.draw(st.binary(max_size=60)), keys="k")
        writer.close()
        path = root / "commitlog" / f"{0:020d}"
        cut = data.draw(st.integers(1, writer.log.end))
        tail = data.draw(st.sampled_from([b"\0", b"\xff", b"\xda\xa3\x20\xa7"]))
        write_file(path, 2048, {cut: (tail * 2048)[: 2048 - cut]})
        log = CommitLog.open([root / "commitlog"])
        valid = list(oracles.scan_segment(path.read_bytes(), 0))
        assert log.end == sum(record.total_size for record in valid)
        for record in valid:
            found = log.record_at(record.physical_offset)
            assert found is not None
            assert len(found) == record.total_size


LONG_SEGMENT = 16384
LATER = START_TIMESTAMP + 60_000


def make(root, count=12, *, body=1, **options):
    writer = StoreWriter(root, **({"segment_size": LONG_SEGMENT} | options))  # type: ignore[arg-type]
    return writer, [writer.append("T", b"body %d" % n * body, keys=f"k{n}", unique_key=f"u{n}") for n in range(count)]


def opened_beside_queues(writer: StoreWriter) -> CommitLog:
    writer.close()
    return CommitLog.open(writer.log.directories, is_left_over=partial(has_another, writer.root))


def ranges(log: CommitLog) -> list[tuple[int, int]]:
    return [(damage.start, damage.stop) for damage in log.damage]


class TestLeftovers:
    """A log was cut at a damaged record and written on: what lies behind the new end is old, and well-formed."""

    def cut(self, root, new, *, later=LATER):
        """Ten old records, cut at the fourth; then new ones in its place."""
        writer, old = make(root, 10, body=30)
        writer.log.end = old[3].physical_offset
        for queue in writer.queues.values():  # a broker cuts the queues too, and overwrites nothing
            for start, content in queue.files.items():
                del content[max(3 * 20 - start, 0) :]
            queue.max_physical_offset = old[2].physical_offset
        writer.next_queue_offset["T", 0] = 3
        writer.written = old[:3]
        for number, body in enumerate(new):
            writer.append("T", body, keys=f"n{number}", store_timestamp=later + number)
        return writer, old

    def test_neither_are_they_where_the_queue_has_a_new_record_in_their_place(self, tmp_path) -> None:
        """The clock was set back, so times tell nothing: queue offsets 3 to 8 were given to new records."""
        writer, old = self.cut(tmp_path, [b"1", b"2", b"3", b"4", b"5", b""], later=START_TIMESTAMP - 10_000)
        assert any(each.physical_offset > writer.log.end and each.queue_offset <= 8 for each in old)
        writer.overwrite(writer.log.end, b"\xff")  # so that no old record starts there by chance
        writer.close()
        stale = [
            each.physical_offset for each in old if each.physical_offset > writer.log.end and each.queue_offset < 9
        ]
        data = writer.log.segments[0].read_bytes()
        log = opened_beside_queues(writer)
        assert (log.end, ranges(log)) == damage_oracle.valid_end(data, left_over=stale)
        for offset in stale:
            assert log.record_at(offset) is None or offset < log.end


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_ends_where_the_oracle_says(data, tmp_path_factory) -> None:
    root = tmp_path_factory.mktemp("any")
    writer = StoreWriter(root, segment_size=4096)
    for _ in range(data.draw(st.integers(1, 12))):
        step = data.draw(st.sampled_from([1, 1, 1, 500, -900, -5000, 60_000]))
        writer.append(
            "T", data.draw(st.binary(max_size=80)), keys="k", store_timestamp=writer.last_store_timestamp + step
        )
    writer.close()
    path = root / "commitlog" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, writer.log.end + 50))
        length = data.draw(st.sampled_from([1, 1, 4, 91, 512]))
        fill = data.draw(st.sampled_from([b"\0", b"\xff", b"\xda\xa3\x20\xa7", b"\x01"]))
        content[start : start + length] = (fill * length)[: len(content[start : start + length])]
    path.write_bytes(content)
    log = CommitLog.open([root / "commitlog"])
    assert (log.end, ranges(log)) == damage_oracle.valid_end(bytes(content))


class TestCosts:
    def test_a_page_that_fell_back_to_what_a_cut_had_left_over_hides_nothing(self, tmp_path) -> None:
        """After a power loss any page may be as it was before: here with 30 records of before a cut, all intact."""
        writer, old = make(tmp_path, 60, segment_size=65536)
        stale = writer.log.segments[0].read_bytes()
        shutil.rmtree(tmp_path)
        writer = StoreWriter(tmp_path, segment_size=65536)
        new = [writer.append("T", b"of another length", store_timestamp=LATER + number) for number in range(100)]
        start, stop = old[10].physical_offset, old[40].physical_offset
        writer.overwrite(start, stale[start:stop])
        log = opened_beside_queues(writer)
        left_over = [each for each in old[10:40] if log.record_at(each.physical_offset) == each.record]
        behind = [each for each in new if each.physical_offset >= stop]
        assert log.end == writer.log.end
        assert behind
        assert all(log.record_at(each.physical_offset) == each.record for each in behind)
        assert len(log.damage) == 1
        assert log.damage[0].stop >= stop - 300
        assert len(left_over) == 30  # what no queue and no index leads to is there to be looked at, in the damage


def by_index(log, segment, blanked):
    """What the server's own index of the log has of the keys that were written."""
    tail = extend_tail(empty_tail([(segment.base_offset, segment.end)]), log, 1 << 30)
    keys = [f"TopicTest#k{number}" for number in range(20)]
    return [offset for key in keys for offset in tail.offsets_of(oracles.index_hash(key))]


def by_queue_offset(log, segment, blanked):
    name = QueueName("TopicTest", 1)
    found = [search(log, name, number, segment.base_offset, segment.end) for number in range(20)]
    return [offset for offset in found if offset is not None]


def by_search(log, segment, blanked):
    matcher = Matcher(Criteria())
    searcher = Searcher(matcher, query_of(matcher), lambda: False)
    return [offset for offset, _ in searcher.run(Chunk(segment, segment.base_offset, segment.end)).found]


def by_coverage(log, segment, blanked):
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


def by_rows(log, segment, blanked):
    is_last, boundary = not blanked.has_next, segment.boundary
    rows, _ = read_rows(segment.file.path, segment.base_offset, is_last=is_last, boundary=boundary)
    return [row["physical_offset"] for row in rows]


READERS = [by_index, by_queue_offset, by_search, by_coverage, by_rows]


def opened_blanked(blanked, directory):
    path = blanked.write(directory)
    log = CommitLog.open([directory])
    return log, next(segment for segment in log.segments if segment.file.path == path)


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(blanked=blanked_segments())
def test_all_intact_records_are_found_whatever_blanks_say(blanked, tmp_path_factory) -> None:
    if not blanked.records:
        return
    log, segment = opened_blanked(blanked, tmp_path_factory.mktemp("log"))
    found = {reader.__name__: sorted(reader(log, segment, blanked)) for reader in READERS}
    assert found == {reader.__name__: blanked.offsets for reader in READERS}
    assert [log.record_at(offset) is not None for offset in blanked.offsets] == [True] * len(blanked.offsets)


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(blanked=blanked_segments())
def test_what_is_no_blank_is_damage_and_named_as_such(blanked, tmp_path_factory) -> None:
    if not blanked.records:
        return
    log, segment = opened_blanked(blanked, tmp_path_factory.mktemp("log"))
    place = segment.file, segment.base_offset, 0, segment.valid_length, segment.boundary
    named = [(damage.start, damage.stop) for damage in find_damaged_ranges(*place)]
    if blanked.has_next:
        assert named == blanked.damage
    else:
        end, damage = damage_oracle.valid_end(blanked.data, blanked.base, length=LENGTH)
        assert (segment.valid_length, named) == (end, damage)
        assert [(each.start, each.stop) for each in log.damage] == damage
