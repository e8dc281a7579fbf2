"""Damage in the last segment does not end the log where sound records follow, and leftovers of a cut do not count."""

import os
import resource
import shutil
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import damage_oracle
from examples import examples
from kernel_memory import record_at
from protocol.question import Question
from storage.files.mapped_file import MappedFile
from storage.log import segment_end as module
from storage.log.commit_log import CommitLog
from storage.log.segment_end import EndSearch
from storage.queue.queue_place import has_another
from storage.store.message_store import MessageStore, StoreOptions
from store_writer import START_TIMESTAMP, StoreWriter, Written

SEGMENT = 16384
LATER = START_TIMESTAMP + 60_000


def make(root: Path, count: int = 12, *, body: int = 1, **options: int) -> tuple[StoreWriter, list[Written]]:
    writer = StoreWriter(root, **({"segment_size": SEGMENT} | options))  # type: ignore[arg-type]
    return writer, [writer.append("T", b"body %d" % n * body, keys=f"k{n}", unique_key=f"u{n}") for n in range(count)]


def opened(writer: StoreWriter) -> CommitLog:
    writer.close()
    return CommitLog.open(writer.log.directories, is_left_over=partial(has_another, writer.root))


def ranges(log: CommitLog) -> list[tuple[int, int]]:
    return [(damage.start, damage.stop) for damage in log.damage]


DAMAGE = {
    "body": (90, b"\xff\xff"),
    "magic": (4, b"\xff"),
    "total size": (0, b"\x7f"),
    "total size 0": (0, bytes(4)),
    "own offset": (35, b"\xff"),
    "topic length": (91, b"\xff"),
    "head zeroed": (0, bytes(40)),
}


class TestLivingStore:
    """One record of many is damaged: all others are there."""

    @pytest.mark.parametrize("number", [0, 5, 10])
    @pytest.mark.parametrize("damage", DAMAGE)
    def test_all_other_records_are_served(self, tmp_path: Path, damage: str, number: int) -> None:
        writer, written = make(tmp_path)
        position, data = DAMAGE[damage]
        writer.overwrite(written[number].physical_offset + position, data)
        log = opened(writer)
        assert log.end == writer.log.end
        assert ranges(log) == [(written[number].physical_offset, written[number + 1].physical_offset)]
        for each in written:
            record = log.record_at(each.physical_offset)
            assert record == (None if each is written[number] else each.record)

    def test_many_damaged_records_hide_nothing_between_them(self, tmp_path: Path) -> None:
        writer, written = make(tmp_path, 60)
        for each in written[1:-1:3]:
            writer.overwrite(each.physical_offset + 90, b"\xff\xff\xff")
        for each in written[2:-1:9]:
            writer.overwrite(each.physical_offset + 4, bytes(4))
        log = opened(writer)
        data = writer.log.segments[0].read_bytes()
        assert (log.end, ranges(log)) == damage_oracle.valid_end(data)
        assert log.end == writer.log.end

    def test_zeroed_pages_hide_nothing_behind_them(self, tmp_path: Path) -> None:
        writer, written = make(tmp_path, 80, segment_size=65536)
        writer.overwrite(4096, bytes(4096))
        log = opened(writer)
        assert log.end == writer.log.end
        (lost,) = ranges(log)
        assert lost[0] <= 4096
        assert lost[1] >= 8192
        for each in written:
            is_whole = each.physical_offset + each.size <= 4096 or each.physical_offset >= 8192
            assert (log.record_at(each.physical_offset) is not None) == is_whole

    def test_a_page_that_is_a_hole_of_the_file_hides_nothing(self, tmp_path: Path) -> None:
        writer, _ = make(tmp_path, 100, segment_size=65536)
        writer.close()
        path = writer.log.segments[0]
        content = path.read_bytes()
        path.unlink()
        with path.open("wb") as file:
            for start in (0, 8192):
                file.seek(start)
                file.write(content[start : start + 4096] if start == 0 else content[start : writer.log.end])
            file.truncate(65536)
        assert CommitLog.open([path.parent]).end == writer.log.end

    @pytest.mark.parametrize("size", [91, 4096])
    def test_the_first_record_of_the_last_segment_hides_nothing(self, tmp_path: Path, size: int) -> None:
        writer, written = make(tmp_path, 200)
        first = next(each for each in written if each.physical_offset == SEGMENT)
        writer.overwrite(first.physical_offset, bytes(size))
        log = opened(writer)
        assert log.end == writer.log.end
        assert log.segments[-1].base_offset == writer.log.end // SEGMENT * SEGMENT

    def test_a_damaged_record_before_the_blank_leaves_the_segment_full(self, tmp_path: Path) -> None:
        writer, written = make(tmp_path)
        writer.overwrite(written[-1].physical_offset + 90, b"\xff\xff")
        writer.roll()
        writer.log.overwrite(SEGMENT, b"")
        log = opened(writer)
        assert log.end == SEGMENT
        assert ranges(log) == [(written[-1].physical_offset, written[-1].physical_offset + written[-1].size)]

    def test_a_clock_that_stepped_back_a_little_hides_nothing(self, tmp_path: Path) -> None:
        writer, _ = make(tmp_path, 3)
        bad = writer.append("T", b"bad", body_crc=1, store_timestamp=START_TIMESTAMP + 900)
        writer.append("T", b"good", store_timestamp=START_TIMESTAMP)
        assert opened(writer).end == writer.log.end > bad.physical_offset

    def test_keys_behind_damage_are_found_and_answers_say_what_is_damaged(self, tmp_path: Path) -> None:
        writer, written = make(tmp_path)
        writer.overwrite(written[5].physical_offset + 4, b"\0")
        writer.close()
        store = MessageStore.open(tmp_path)
        answer = store.query(Question("T", "k9"))
        assert answer.physical_offsets == (written[9].physical_offset,)
        assert answer.incomplete is not None
        assert f"at physical offset {written[5].physical_offset} hold no intact record" in answer.incomplete

    def test_a_cached_end_does_not_hide_that_there_is_damage(self, tmp_path: Path) -> None:
        writer, written = make(tmp_path / "store")
        writer.overwrite(written[5].physical_offset + 4, b"\0")
        writer.close()
        for _ in range(2):
            store = MessageStore.open(tmp_path / "store", StoreOptions(state_directory=tmp_path / "state"))
            assert len(store.problems) == 1


class TestLeftovers:
    """A log was cut at a damaged record and written on: what lies behind the new end is old, and well-formed."""

    def cut(self, root: Path, new: list[bytes], *, later: int = LATER) -> tuple[StoreWriter, list[Written]]:
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

    def test_older_records_behind_the_new_end_are_not_served(self, tmp_path: Path) -> None:
        writer, old = self.cut(tmp_path, [b"another length", b"x"])
        log = opened(writer)
        assert log.end == writer.log.end
        assert log.damage == ()
        behind = [each for each in old[3:] if each.physical_offset >= log.end]
        assert len(behind) >= 5
        for each in behind:
            assert log.record_at(each.physical_offset) is None

    def test_neither_are_they_where_the_queue_has_a_new_record_in_their_place(self, tmp_path: Path) -> None:
        """The clock was set back, so times tell nothing: queue offsets 3 to 8 were given to new records."""
        writer, old = self.cut(tmp_path, [b"1", b"2", b"3", b"4", b"5", b""], later=START_TIMESTAMP - 10_000)
        assert any(each.physical_offset > writer.log.end and each.queue_offset <= 8 for each in old)
        writer.overwrite(writer.log.end, b"\xff")  # so that no old record starts there by chance
        writer.close()
        stale = [
            each.physical_offset for each in old if each.physical_offset > writer.log.end and each.queue_offset < 9
        ]
        data = writer.log.segments[0].read_bytes()
        log = opened(writer)
        assert (log.end, ranges(log)) == damage_oracle.valid_end(data, left_over=stale)
        for offset in stale:
            assert log.record_at(offset) is None or offset < log.end

    def test_a_torn_last_record_has_nothing_behind_it(self, tmp_path: Path) -> None:
        writer, written = make(tmp_path)
        last = written[-1]
        writer.overwrite(last.physical_offset, last.record[:60].ljust(last.size, b"\0"))
        writer.crash()
        log = CommitLog.open(writer.log.directories)
        assert (log.end, log.damage) == (last.physical_offset, ())
        assert log.torn_end is not None

    def test_a_whole_old_segment_that_starts_with_damage_is_not_served(self, tmp_path: Path) -> None:
        writer, written = make(tmp_path, 3)
        writer.append("T", b"new", store_timestamp=LATER)
        end = writer.log.end
        writer.roll()
        writer.append("T", b"of another log", own_offset=77)
        stale = writer.append("T", b"old", store_timestamp=START_TIMESTAMP)
        log = opened(writer)
        assert log.end in (end, SEGMENT)
        assert log.record_at(stale.physical_offset) is None
        assert written


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_ends_where_the_oracle_says(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
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


def bytes_looked_at() -> int:
    """What this process has read, and a page for each time that it came to one of a map which it had not yet."""
    read = int(Path("/proc/self/io").read_text().partition("rchar:")[2].split()[0])
    return read + resource.getrusage(resource.RUSAGE_SELF).ru_minflt * resource.getpagesize()


class TestCosts:
    def test_a_large_hole_behind_the_end_costs_nothing(self, disk_path: Path) -> None:
        path = disk_path / f"{0:020d}"
        path.touch()
        os.truncate(path, 2**34)
        looked_at = bytes_looked_at()
        assert CommitLog.open([disk_path]).end == 0
        assert bytes_looked_at() - looked_at < 2**28

    def test_places_of_damage_that_are_listed_are_bounded_and_none_of_the_records_between_is_lost(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "MOST_DAMAGE", 5)
        writer, written = make(tmp_path, 41)
        for number, each in enumerate(written[1::2]):
            writer.overwrite(each.physical_offset + (4 if number < 15 else 90), b"\xff")
        log = opened(writer)
        assert (len(log.damage), log.more_damage) == (5, 15)
        assert (log.end, log.torn_end) == (writer.log.end, None)
        assert all(log.record_at(each.physical_offset) == each.record for each in written[::2])
        assert log.problems[-1] == "15 more places of the last segment hold no intact record"

    def test_damage_that_is_told_is_bounded(self, tmp_path: Path) -> None:
        writer, written = make(tmp_path, 40)
        for each in written[1:-1:2]:
            writer.overwrite(each.physical_offset + 4, b"\0")
        problems = opened(writer).problems
        assert len(problems) == 6
        assert problems[-1] == "14 more places of the last segment hold no intact record"

    def test_records_are_found_behind_however_much_damage(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "CHUNK", 512)
        writer, written = make(tmp_path, 100)
        writer.overwrite(written[5].physical_offset, b"\xff" * 3000)
        assert opened(writer).end == writer.log.end

    def test_records_are_found_behind_70_mebibytes_of_damage(self, tmp_path: Path) -> None:
        writer = StoreWriter(tmp_path, segment_size=80 * 2**20)
        writer.append("T", b"before")
        writer.append_bytes(b"\xda" * (70 * 2**20))
        behind = writer.append("T", b"behind")
        log = opened(writer)
        assert log.end == writer.log.end
        assert log.record_at(behind.physical_offset) == behind.record

    def test_a_page_that_fell_back_to_what_a_cut_had_left_over_hides_nothing(self, tmp_path: Path) -> None:
        """After a power loss any page may be as it was before: here with 30 records of before a cut, all intact."""
        writer, old = make(tmp_path, 60, segment_size=65536)
        stale = writer.log.segments[0].read_bytes()
        shutil.rmtree(tmp_path)
        writer = StoreWriter(tmp_path, segment_size=65536)
        new = [writer.append("T", b"of another length", store_timestamp=LATER + number) for number in range(100)]
        start, stop = old[10].physical_offset, old[40].physical_offset
        writer.overwrite(start, stale[start:stop])
        log = opened(writer)
        left_over = [each for each in old[10:40] if log.record_at(each.physical_offset) == each.record]
        behind = [each for each in new if each.physical_offset >= stop]
        assert log.end == writer.log.end
        assert behind
        assert all(log.record_at(each.physical_offset) == each.record for each in behind)
        assert len(log.damage) == 1
        assert log.damage[0].stop >= stop - 300
        assert len(left_over) == 30  # what no queue and no index leads to is there to be looked at, in the damage

    def test_bytes_of_what_was_left_over_are_summed_up_once(self, tmp_path: Path) -> None:
        """Records in the body of a record that is too old are no records, and would make the search slow."""
        writer, _ = make(tmp_path, 3, segment_size=65536)
        first = writer.append("T", b"x", body_crc=5, store_timestamp=LATER)
        at = first.physical_offset + first.size + 88
        inner = record_at(at, store_timestamp=LATER + 1)
        writer.append("T", inner, store_timestamp=START_TIMESTAMP - 5000)
        log = opened(writer)
        assert log.end == first.physical_offset

    @pytest.mark.parametrize("known", [0, 1, 300])
    def test_a_known_end_is_walked_on_from_past_damage(self, tmp_path: Path, known: int) -> None:
        writer, written = make(tmp_path)
        writer.overwrite(written[8].physical_offset + 4, b"\0")
        writer.close()
        file = MappedFile.open(writer.log.segments[0])
        end = EndSearch(0, file).run(known and written[min(known, 3)].physical_offset)
        assert end.position == writer.log.end
        assert len(end.damage) == 1
