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
from storage.log import segment_end as module
from storage.log.commit_log import CommitLog
from storage.queue.queue_place import has_another
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
