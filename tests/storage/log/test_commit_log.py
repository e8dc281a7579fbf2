"""The log: its segments, where it ends, and windows over it that bytes may be missing from."""

import errno
import os
import random
import re
import shutil
import zlib
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import damage_oracle
import oracles
from blanks import LENGTH, blanked_segments
from column_rows import read_rows
from examples import examples
from golden_store import GOLDEN, log_folders, unpack
from kernel_memory import HeldFile, headers_in_one_another, record_at
from oracles import BLANK_MAGIC, read_log, read_record, signed
from protocol.errors import StoreError, TruncatedFile
from protocol.question import Question
from small_logs import G2, opened
from storage.files.waiting import Unfinished, begin
from storage.index.index_file import ENTRY_DTYPE
from storage.index.tail_index import empty_tail, extend_tail
from storage.kernels import records as codes
from storage.kernels.region import Region
from storage.kernels.texts import bytes_at
from storage.log.absence import explain_absence
from storage.log.commit_log import CommitLog, Segment
from storage.log.damaged_ranges import find_damaged_ranges
from storage.log.fillers import LARGEST, SMALLEST, fill
from storage.log.log_place import place_behind
from storage.log.log_window import LocalFile, LogWindow
from storage.log.segment_list import segment_size
from storage.queue._log_search import search
from storage.queue.queue_place import has_another
from storage.queue.queue_record import QueueName
from storage.search.chunk import Chunk, Searcher
from storage.search.criteria import Criteria
from storage.search.matcher import Matcher
from storage.search.query import query_of
from storage.store.message_store import MessageStore
from store_files import write_file
from store_writer import START_TIMESTAMP, StoreWriter


def test_a_segment_that_overlaps_the_next_counts_up_to_it(tmp_path) -> None:
    first, inner = record_at(0, body=bytes(100)), record_at(600)
    write_file(tmp_path / f"{0:020d}", 2048, {0: first, 600: record_at(600, body=b"hidden")})
    write_file(tmp_path / f"{600:020d}", 1024, {0: inner})
    log = CommitLog.open([tmp_path])
    assert bytes(log.record_at(600) or b"") == inner
    assert log.segments[0].end == 600
    assert any("the overlap is ignored" in problem for problem in log.problems)


def test_places_that_say_to_be_long_records_are_not_summed_up_again_and_again(tmp_path) -> None:
    """Entries may lead to all of them, in any order; one by one it would be some 20 GB."""
    step, count, sound = 100, 20_000, record_at(0)
    log = headers_in_one_another(0, step, count)
    log[: len(sound)] = sound
    write_file(tmp_path / "0".zfill(20), len(log), {0: bytes(log)})
    commit_log = CommitLog.open([tmp_path])
    places = [step * number for number in range(count) if step * number >= len(sound)]
    random.Random(7).shuffle(places)
    whole = [replace(segment, valid_length=len(log)) for segment in commit_log.segments]
    commit_log = CommitLog(whole, ())
    assert {commit_log.check(place) for place in places} == {codes.BAD_BODY_CRC}
    assert commit_log.check(0) == len(sound)
    summed = sum(sums.summed for sums in commit_log._sums.values())
    assert codes.SUM_PATIENCE < summed < 2 * codes.SUM_PATIENCE + 2 * count * codes.SUM_STEP


@pytest.mark.parametrize("name", ["store", "store-crashed", *G2[::3]])
def test_recorded_logs_are_read_whole(name, tmp_path) -> None:
    archives = {} if name.startswith("store") else {"archives": GOLDEN / "g2" / name}
    directories = log_folders(unpack(name if not archives else "store", tmp_path, **archives))
    log = CommitLog.open(directories)
    records = read_log(directories)
    assert len(records) > 20
    assert log.record_start(log.minimum) == records[0].physical_offset
    check(log, directories, len(records), may_have_holes=True)


@pytest.mark.parametrize("look", ["record_at", "unchecked_record_at"])
def test_what_is_cold_is_asked_for_and_then_there(tmp_path, look, monkeypatch) -> None:
    writer = StoreWriter(tmp_path, segment_size=1 << 20)
    written = writer.append("T", bytes(200_000))
    log = opened(writer)
    view = log.view

    def cold_at_first(physical_offset: int, tick: int) -> memoryview | int:
        return codes.COLD if tick else getattr(view, look)(physical_offset, tick)

    monkeypatch.setattr(log, "view", SimpleNamespace(**{look: cold_at_first, "find_segment": view.find_segment}))
    step = begin(getattr(log, f"{look}_lookup")(0))
    assert isinstance(step, Unfinished)
    assert str(step.wait) == "physical offset 0 is cold"
    assert step.finish() == getattr(log, look)(0) == written.record


def filled(writer: StoreWriter, count: int = 12) -> StoreWriter:
    for number in range(count):
        writer.append("T", b"x" * 100, keys=f"k{number}")
    return writer


def check(log, directories, messages, *, may_have_holes=False) -> None:
    records = read_log(directories)
    assert len(records) == messages
    for record in records:
        assert len(log.record_at(record.physical_offset)) == record.total_size
        assert log.store_timestamp_at(record.physical_offset, record.total_size) == record.store_timestamp
    assert (log.end, log.problems) == (records[-1].physical_offset + records[-1].total_size, ())
    assert log.holes == () or may_have_holes


def test_every_record_is_where_the_oracle_reads_it(tmp_path) -> None:
    writer = filled(StoreWriter(tmp_path, segment_size=1024, is_ledger=True))
    log = CommitLog.open(writer.log.directories)
    check(log, writer.log.directories, 12)
    assert len(log.segments) > 2


def test_entries_go_on_where_plain_segments_end(tmp_path) -> None:
    plain = filled(StoreWriter(tmp_path / "plain", segment_size=1024))
    plain.roll()
    ledger = filled(StoreWriter(tmp_path / "ledger", segment_size=1024, is_ledger=True, start=plain.log.end))
    directories = [*plain.log.directories, *ledger.log.directories]
    check(CommitLog.open(directories), directories, 24)


@pytest.fixture
def writer(tmp_path):
    writer = StoreWriter(tmp_path / "store", segment_size=1024)
    writer.append("T", b"x" * 100)
    return writer


def log_of(writer: StoreWriter) -> CommitLog:
    writer.flush()
    return CommitLog.open(writer.log.directories)


def test_a_place_in_a_file_that_was_cut_is_looked_at_without_harm(writer: StoreWriter) -> None:
    place = place_behind(log_of(writer), writer.log.directories)
    os.truncate(place.file.path, 10)
    assert (place.peek(8), place.has_nothing()) == (b"", False)


def test_the_damaged_record_can_be_shown_and_explained(tmp_path) -> None:
    with StoreWriter(tmp_path) as writer:
        sixth = [writer.append("T", b"body", keys=f"k{number}") for number in range(10)][5]
        writer.overwrite(sixth.physical_offset + sixth.record.index(b"body"), b"c")
    store = MessageStore.open(tmp_path)
    assert store.record_at(sixth.physical_offset) is None
    shown = store.damaged_record_at(sixth.physical_offset)
    assert len(shown) == sixth.size
    assert zlib.crc32(shown) != zlib.crc32(sixth.record)
    assert "does not match its CRC" in store.explain_absence(sixth.physical_offset)


@pytest.mark.parametrize(("name", "kind"), [("config/topics.json", "fifo"), ("abort", "fifo"), ("abort", "device")])
def test_what_is_no_regular_file_is_not_waited_on(g1_store, tmp_path, name, kind) -> None:
    root = tmp_path / "store"
    shutil.copytree(g1_store, root)
    path = root / name
    path.unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    store = MessageStore.open(root)
    assert store.query(Question("TopicTest", "hotkey")).count == 40


SIZE = 131_072


def test_what_names_and_sizes_say_together() -> None:
    for files, expected in [
        ([], 0),
        ([(0, 0)], 0),
        ([(0, 130_000)], 130_000),
        ([(0, 130_000), (SIZE, 20_000)], SIZE),
        ([(0, 130_000), (SIZE, 130_000)], SIZE),
        ([(0, 130_000), (2 * SIZE, 20_000), (5 * SIZE, 100)], SIZE),  # the names' common distance
        ([(0, SIZE), (2 * SIZE, SIZE)], SIZE),
        ([(0, SIZE - 5), (SIZE, SIZE + 100)], SIZE),
        ([(0, SIZE), (SIZE, SIZE), (2 * SIZE + 100, SIZE)], SIZE),
    ]:
        assert segment_size(files) == expected


@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_log_cut_anywhere_ends_where_the_oracle_stops(data, tmp_path_factory) -> None:
    root = tmp_path_factory.mktemp("cut")
    with StoreWriter(root, segment_size=2048) as writer:
        for _ in range(data.draw(st.integers(1, 8))):
            writer.append("T", data.draw(st.binary(max_size=60)), keys="k")
    path = root / "commitlog" / f"{0:020d}"
    cut = data.draw(st.integers(1, writer.log.end))
    tail = data.draw(st.sampled_from([b"\0", b"\xff", b"\xda\xa3\x20\xa7"]))
    write_file(path, 2048, {cut: (tail * 2048)[: 2048 - cut]})
    log = CommitLog.open([root / "commitlog"])
    valid = list(oracles.scan_segment(path.read_bytes(), 0))
    assert log.end == sum(record.total_size for record in valid)
    for record in valid:
        found = log.record_at(record.physical_offset)
        assert len(found) == record.total_size


LATER = START_TIMESTAMP + 60_000


def make(root, count=12, *, body=1, **options):
    writer = StoreWriter(root, **({"segment_size": 16384} | options))  # type: ignore[arg-type]
    return writer, [writer.append("T", b"body %d" % n * body, keys=f"k{n}", unique_key=f"u{n}") for n in range(count)]


def opened_beside_queues(writer: StoreWriter) -> CommitLog:
    writer.close()
    return CommitLog.open(writer.log.directories, is_left_over=partial(has_another, writer.root))


def ranges(log: CommitLog) -> list[tuple[int, int]]:
    return [(damage.start, damage.stop) for damage in log.damage]


def cut(root, new, *, later=LATER):
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


def test_neither_are_they_where_the_queue_has_a_new_record_in_their_place(tmp_path) -> None:
    """The clock was set back, so times tell nothing: queue offsets 3 to 8 were given to new records."""
    writer, old = cut(tmp_path, [b"1", b"2", b"3", b"4", b"5", b""], later=START_TIMESTAMP - 10_000)
    assert any(each.physical_offset > writer.log.end and each.queue_offset <= 8 for each in old)
    writer.overwrite(writer.log.end, b"\xff")  # so that no old record starts there by chance
    writer.close()
    stale = [each.physical_offset for each in old if each.physical_offset > writer.log.end and each.queue_offset < 9]
    data = writer.log.segments[0].read_bytes()
    log = opened_beside_queues(writer)
    assert (log.end, ranges(log)) == damage_oracle.valid_end(data, left_over=stale)
    for offset in stale:
        assert log.record_at(offset) is None or offset < log.end


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_ends_where_the_oracle_says(data, tmp_path_factory) -> None:
    root = tmp_path_factory.mktemp("any")
    with StoreWriter(root, segment_size=4096) as writer:
        for _ in range(data.draw(st.integers(1, 12))):
            step = data.draw(st.sampled_from([1, 1, 1, 500, -900, -5000, 60_000]))
            writer.append(
                "T", data.draw(st.binary(max_size=80)), keys="k", store_timestamp=writer.last_store_timestamp + step
            )
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


def test_a_page_that_fell_back_to_what_a_cut_had_left_over_hides_nothing(tmp_path) -> None:
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
        lacking = codes.find_record_by_entries(
            region, position, stop, stop, base, segment.boundary, none, 1, True, False
        )
        position = lacking.position
        if lacking.reason == codes.AT_DAMAGE:
            position = codes.find_record(region, position + 1, stop, base)
        elif lacking.reason == codes.AT_RECORD:
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


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(blanked=blanked_segments())
def test_all_intact_records_are_found_whatever_blanks_say_and_what_is_none_is_damage(blanked, tmp_path_factory) -> None:
    if not blanked.records:
        return
    path = blanked.write(tmp_path_factory.mktemp("log"))
    log = CommitLog.open([path.parent])
    segment = next(segment for segment in log.segments if segment.file.path == path)
    found = {reader.__name__: sorted(reader(log, segment, blanked)) for reader in READERS}
    assert found == {reader.__name__: blanked.offsets for reader in READERS}
    assert all(log.record_at(offset) is not None for offset in blanked.offsets)
    place = segment.file, segment.base_offset, 0, segment.valid_length, segment.boundary
    named = [(damage.start, damage.stop) for damage in find_damaged_ranges(*place)]
    if blanked.has_next:
        assert named == blanked.damage
    else:
        end, damage = damage_oracle.valid_end(blanked.data, blanked.base, length=LENGTH)
        assert (segment.valid_length, named) == (end, damage)
        assert [(each.start, each.stop) for each in log.damage] == damage


class InPieces:
    """Hands out few bytes at once, and fails from a position on."""

    path = "store/0"

    def __init__(self, data: bytes, fails_at: int | None = None) -> None:
        self.data, self.size, self.fails_at, self.is_closed = data, len(data), fails_at, False

    def read_into(self, view: memoryview, position: int) -> int:
        if self.fails_at is not None and position >= self.fails_at:
            raise OSError("the line is dead")
        piece = self.data[position : position + min(len(view), 7)]
        view[: len(piece)] = piece
        return len(piece)

    def first_data(self, position: int) -> int:
        return position

    def close(self) -> None:
        self.is_closed = True


def bytes_of(window: LogWindow, position: int, size: int) -> bytes:
    assert window.show(position, size)
    return bytes(window.region)[position - window.start :][:size]


def test_what_is_shown_is_what_is_there() -> None:
    data = bytes(np.arange(20_000, dtype=np.uint16).astype(">u2").tobytes())
    source = InPieces(data)
    with LogWindow(source, 0, 4096) as window:
        for position, size in ((0, 10), (4000, 300), (39_000, 1000), (100, 20_000), (0, 40_000)):
            assert bytes_of(window, position, size) == data[position : position + size]
        assert not window.show(39_999, 2)
        assert not window.show(-1, 1)
        assert window.i32(8) == int.from_bytes(data[8:12], "big")
    assert source.is_closed


class AtOnce(InPieces):
    def read_into(self, view: memoryview, position: int) -> int:
        piece = self.data[position : position + len(view)]
        view[: len(piece)] = piece
        return len(piece)


@pytest.mark.parametrize("is_mapped", [True, False])
def test_headers_in_one_another_are_not_summed_up_again_and_again(tmp_path, is_mapped) -> None:
    """Each is that of a record which goes to the end, but for its checksum; sound ones stand among them."""
    base, step, count = 1 << 32, 150, 8_000
    size = step * count + 200
    log = headers_in_one_another(base, step, count)
    sound = {step * number: record_at(base + step * number, body=b"", topic_bytes=b"T") for number in (5, 4000, 7999)}
    for position, record in sound.items():
        assert len(record) < step
        log[position : position + step] = record.ljust(step, bytes(1))
    path = tmp_path / "0"
    path.write_bytes(log)
    with LogWindow(LocalFile(path) if is_mapped else AtOnce(bytes(log)), base, 4096) as window:
        position, intact = -1, {}
        while (position := window.find_candidate(position + 1)) >= 0:
            if found := window.intact_size(position):
                intact[position] = found
                window.move(position + found)
        assert intact == {position: len(record) for position, record in sound.items()}
        # One by one it would be some 5 GB.
        assert window._summed_for_nothing <= codes.SUM_PATIENCE + size
        assert window._sums.summed <= 2 * size + 2 * count * codes.SUM_STEP


def test_a_failing_read_names_file_and_offset() -> None:
    expected = "0 at physical offset 1073741880: cannot be read: the line is dead"
    window = LogWindow(InPieces(bytes(9000), fails_at=50), 1 << 30, 4096)
    with window, pytest.raises(StoreError, match=expected):
        window.move(0)


@pytest.fixture(params=["mapped", "copied"])
def held_as(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "copied":  # as where the kernel is older than MADV_POPULATE_READ
        monkeypatch.setattr(LocalFile, "map", Mock(side_effect=OSError(errno.EINVAL, "pages cannot be read")))
    return request.param


def written(path, size):
    data = np.random.default_rng(7).integers(0, 256, size, np.uint8).tobytes()
    path.write_bytes(data)
    return data


def test_holes_are_stepped_over(disk_path, held_as) -> None:
    path = disk_path / "0"
    with path.open("wb") as file:
        file.truncate(1 << 26)
    with LogWindow(LocalFile(path), 0) as window:
        window.move(0)
        assert window.find_candidate(1) == -1
        assert window.bytes_read < 1 << 23


@given(moves=st.lists(st.tuples(st.integers(0, 3 << 20), st.integers(0, 1 << 20), st.booleans()), max_size=12))
@settings(max_examples=examples(12), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_is_shown_wherever_the_window_goes(tmp_path_factory, held_as, moves) -> None:
    path = tmp_path_factory.mktemp("file") / "0"
    data = written(path, (3 << 20) + 77)
    with LogWindow(LocalFile(path), 0, 3 * 65536 + 5) as window:
        for position, size, goes_on in moves:
            at = min(window.start + position % (window.filled + 1), len(data)) if goes_on else position
            window.move(at)
            assert window.start == at
            assert bytes_of_region(window) == data[at : at + window.filled]
            assert window.show(at, size) == (at + size <= len(data))
            assert bytes_of_region(window) == data[window.start : window.start + window.filled]
            assert window.filled >= size or at + size > len(data)


def bytes_of_region(window: LogWindow) -> bytes:
    return bytes_at(window.region, 0, window.filled)


@pytest.mark.parametrize("kept", [0, (1 << 22) + 1])
def test_a_file_that_is_cut_while_it_is_read_is_named(tmp_path, held_as, kept) -> None:
    path, size = tmp_path / "00000000000000000000", 1 << 23
    written(path, size)
    with LogWindow(LocalFile(path), 0, 1 << 20) as window:
        window.move(0)
        os.truncate(path, kept)
        found = kept if held_as == "mapped" else max(kept, window.filled)  # a copy stays
        with pytest.raises(TruncatedFile, match=f"{path}: needs {size} bytes, but only {found} are there"):  # noqa: PT012
            while not window.is_at_end:
                window.move(window.start + window.filled)


def test_what_was_made_of_a_file_that_was_cut_meanwhile_does_not_count(tmp_path) -> None:
    path, size = tmp_path / "0", 1 << 21
    written(path, size)
    said = f"needs {size} bytes, but only 4096 are there"
    with pytest.raises(TruncatedFile, match=said), LogWindow(LocalFile(path), 0) as window:  # noqa: PT012
        window.move(0)
        os.truncate(path, 4096)
        assert bytes_of_region(window)[4096:] == bytes(window.filled - 4096)


def log_in_memory(data: bytes) -> CommitLog:
    """One segment whose last byte is the last that may be read: a page behind it is not there."""
    file = HeldFile(data)
    return CommitLog([Segment(0, file, file.size)], [])


@pytest.mark.parametrize("padding", [b"", b"\xff", record_at(0)])
def test_each_part_of_a_log_has_its_reason(tmp_path, padding) -> None:
    with StoreWriter(tmp_path, segment_size=1024, start=2048, padding=padding) as writer:
        first = writer.append("T", b"one")
        writer.roll()
        writer.skip_segments(2)
        writer.roll()
        last = writer.append("T", b"x", body_crc=1)
        sound = writer.append("T", b"y")
    log = CommitLog.open([tmp_path / "commitlog"])
    end, record = sound.physical_offset + sound.size, f"the record that starts at 2048 ({first.size} bytes)"
    for offsets, reason in (
        ((-(2**63), -1, 0, 2047), "lies before the log's start at 2048"),
        (range(2049, 2048 + first.size), f"lies inside {record}"),
        (
            (2048 + first.size, 2056 + first.size, 3071),
            "lies in the blank rest of its segment, behind the record at 2048",
        ),
        ((3072, 5119), "lies in a hole of the log: no segment holds 3072 to 5120"),
        ((5220,), "lies in a segment that is blank from its start"),
        ((end, end + 1, 2**63 - 1), f"lies past the end of the log's valid data at {end}"),
    ):
        for offset in offsets:
            assert explain_absence(log, offset) == f"physical offset {offset} {reason}"
    damaged = last.physical_offset
    assert explain_absence(log, damaged) == (
        f"physical offset {damaged}: the record there is damaged: its body does not match its CRC"
    )


@settings(max_examples=examples(60))
@given(st.data())
def test_any_offset_of_any_bytes_gets_one_clause(data: st.DataObject) -> None:
    content = bytearray()
    for _ in range(data.draw(st.integers(0, 3))):
        content += record_at(len(content), body=data.draw(st.binary(max_size=5)))
    for _ in range(data.draw(st.integers(0, 3))):
        if content:
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content += data.draw(st.binary(min_size=1, max_size=120))
    offset = data.draw(st.integers(0, len(content) - 1))
    text = explain_absence(log_in_memory(bytes(content)), offset)
    assert re.match(rf"physical offset {offset}\b", text)
    if inside := re.search(r"starts at (\d+) \((\d+) bytes\)", text):
        start, size = map(int, inside.groups())
        assert start < offset < start + size
        assert oracles.read_record(bytes(content), start, start, check_crc=False)


def test_offsets_of_the_recorded_store_are_explained_by_their_records(g1_store) -> None:
    log = CommitLog.open([g1_store / "commitlog"])
    records = oracles.read_log(g1_store / "commitlog")
    assert len(records) > 100
    for record in records[::20]:
        for distance in (1, 50, record.total_size - 1):
            text = explain_absence(log, record.physical_offset + distance)
            assert text.endswith(f"starts at {record.physical_offset} ({record.total_size} bytes)")


TIME = 1_700_000_000_000


def filled_segment(start: int, stop: int, base: int, boundary: int) -> bytes:
    data = bytearray(boundary - base)
    for piece in fill(start, stop, base, boundary, TIME):
        position = piece.physical_offset - base
        assert start <= piece.physical_offset
        assert piece.physical_offset + len(piece.data) <= stop
        data[position : position + len(piece.data)] = piece.data
    return bytes(data)


@given(start=st.integers(0, 5000), size=st.integers(SMALLEST, 3 * LARGEST))
def test_records_of_rolled_back_transactions_fill_a_range_exactly(start: int, size: int) -> None:
    base, boundary = 1 << 30, (1 << 30) + start + size + 100
    data = filled_segment(base + start, base + start + size, base, boundary)
    walk = codes.walk_records(Region(data), start, start + size, base, boundary, True)
    assert (walk.reason, walk.position) == (codes.AT_LIMIT, start + size)
    position = start
    while position < start + size:
        record = read_record(data, position)
        assert record.sys_flag & 0xC == 0xC  # rolled back
        assert (record.physical_offset, record.store_timestamp) == (base + position, TIME)
        assert "ROCKETLENS_FILLER".startswith(record.topic)
        assert record.topic
        assert record.total_size <= LARGEST
        position += record.total_size


@given(start=st.integers(1, 5000), size=st.integers(8, 5000))
def test_a_range_up_to_the_end_of_a_segment_is_one_blank(start: int, size: int) -> None:
    data = filled_segment(start, start + size, 0, start + size)
    assert (signed(data, start, 4), data[start + 4 : start + 8]) == (size, BLANK_MAGIC.to_bytes(4, "big"))
    assert codes.walk_records(Region(data), start, len(data), 0, len(data), True).reason == codes.AT_BLANK
