"""The log as one stream: segments of any kind and size, reading, what a torn end hides, recorded logs."""

import os
import random
import shutil
import zlib
from dataclasses import replace
from types import SimpleNamespace

import pytest

import oracles
from golden_store import GOLDEN, log_folders, unpack
from kernel_memory import headers_in_one_another, record_at
from oracles import read_log
from protocol.question import Question
from small_logs import G2, opened
from storage.files.waiting import Unfinished, begin
from storage.kernels import records as codes
from storage.log.commit_log import CommitLog
from storage.log.log_place import place_behind
from storage.log.segment_list import segment_size
from storage.store.message_store import MessageStore
from store_files import write_file
from store_writer import StoreWriter


class TestSegments:
    """ "Segments = union of commitlog dirs, sorted numerically; check adjacency; minimum = first name." """

    def test_a_segment_that_overlaps_the_next_counts_up_to_it(self, tmp_path) -> None:
        first, inner = record_at(0, body=bytes(100)), record_at(600)
        write_file(tmp_path / f"{0:020d}", 2048, {0: first, 600: record_at(600, body=b"hidden")})
        write_file(tmp_path / f"{600:020d}", 1024, {0: inner})
        log = CommitLog.open([tmp_path])
        assert bytes(log.record_at(600) or b"") == inner
        assert log.segments[0].end == 600
        assert any("the overlap is ignored" in problem for problem in log.problems)


class TestReading:
    def test_places_that_say_to_be_long_records_are_not_summed_up_again_and_again(self, tmp_path) -> None:
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


class TestGolden:
    @pytest.mark.parametrize("name", ["store", "store-crashed"])
    def test_the_recorded_log_is_read_whole(self, name, tmp_path) -> None:
        self.check([unpack(name, tmp_path) / "commitlog"])

    @pytest.mark.parametrize("name", G2[::3])
    def test_the_logs_of_other_recorded_stores_are_read_whole(self, name, tmp_path) -> None:
        root = unpack("store", tmp_path, archives=GOLDEN / "g2" / name)
        self.check(log_folders(root))

    def check(self, directories) -> None:
        records = oracles.read_log(directories)
        log = CommitLog.open(directories)
        assert len(records) > 20
        assert log.record_start(log.minimum) == records[0].physical_offset
        assert log.end == records[-1].physical_offset + records[-1].total_size
        assert log.problems == ()
        for record in records:
            found = log.record_at(record.physical_offset)
            assert found is not None
            assert len(found) == record.total_size
            assert log.store_timestamp_at(record.physical_offset, record.total_size) == record.store_timestamp


class TestCold:
    @pytest.mark.parametrize("look", ["record_at", "unchecked_record_at"])
    def test_what_is_cold_is_asked_for_and_then_there(self, tmp_path, look, monkeypatch) -> None:
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


def check(log, directories, messages) -> None:
    records = read_log(directories)
    assert len(records) == messages
    for record in records:
        found = log.record_at(record.physical_offset)
        assert found is not None
        assert len(found) == record.total_size
    assert log.end == records[-1].physical_offset + records[-1].total_size
    assert log.problems == ()
    assert log.holes == ()


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


SEGMENT = 1024


@pytest.fixture
def writer(tmp_path):
    writer = StoreWriter(tmp_path / "store", segment_size=SEGMENT)
    writer.append("T", b"x" * 100)
    return writer


def log_of(writer: StoreWriter) -> CommitLog:
    writer.flush()
    return CommitLog.open(writer.log.directories)


def behind(writer):
    return place_behind(log_of(writer), writer.log.directories)


def test_a_place_in_a_file_that_was_cut_is_looked_at_without_harm(writer: StoreWriter) -> None:
    place = behind(writer)
    assert place is not None
    os.truncate(place.file.path, 10)
    assert (place.peek(8), place.has_nothing()) == (b"", False)


@pytest.fixture
def damaged(tmp_path):
    writer = StoreWriter(tmp_path)
    written = [writer.append("T", b"body", keys=f"k{number}") for number in range(10)]
    writer.close()
    sixth = written[5]
    place = sixth.physical_offset + sixth.record.index(b"body")
    path = tmp_path / "commitlog" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    return writer, tmp_path


def test_the_damaged_record_can_be_shown_and_explained(damaged) -> None:
    writer, root = damaged
    sixth = writer.written[5]
    store = MessageStore.open(root)
    assert store.record_at(sixth.physical_offset) is None
    shown = store.damaged_record_at(sixth.physical_offset)
    assert shown is not None
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
