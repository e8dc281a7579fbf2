"""A store that is followed while it grows answers at every step as one that is opened at that step."""

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from growing_store import GrowingStore, everything, of_queue, true_answers
from storage import follow, log_follower, store_watch
from storage.follow import Arrivals, StoreFollower
from storage.lookup_call import KeyKind, KeyQuery
from storage.message_store import MessageStore, StoreOptions


class Followed:
    """A store that grows, and one that follows it."""

    def __init__(self, root: Path, **options: Any) -> None:
        self.growing = GrowingStore(root, **options)
        self.growing.add()
        self.growing.flush()
        self.open()

    def open(self) -> None:
        self.store = MessageStore.open(self.growing.root)
        self.follower = StoreFollower(self.store)

    def poll(self, times: int = 3) -> list[Arrivals]:
        """As often as the last record takes: seen, found unchanged, dispatched."""
        return [arrivals for arrivals in (self.follower.poll() for _ in range(times)) if arrivals is not None]

    def settle(self) -> None:
        """Poll and watch until nothing comes any more."""
        self.poll()
        self.follower.watch()
        while self.poll():
            pass

    def check_queues(self) -> None:
        """Read all queues, so that their files are open."""
        for topic in self.store.queues.topics():
            for queue in self.store.queues.queues_of(topic):
                assert list(of_queue(self.store, topic, queue.queue_id))

    def found(self, key: str, kind: KeyKind = KeyKind.KEY, topic: str = "T") -> list[int]:
        return list(self.store.query(KeyQuery(topic, key, kind, maximum=500)).physical_offsets)

    def check(self) -> None:
        """The same answers as those of a store opened now."""
        self.follower.watch()
        records = self.growing.writer.records
        fresh = MessageStore.open(self.growing.root)
        for ours, theirs in zip(everything(self.store, records), everything(fresh, records), strict=True):
            assert ours == theirs
        for topic, key, kind in {(r.topic, r.properties.get("UNIQ_KEY", ""), "U") for r in records}:
            assert tuple(self.found(key, KeyKind.UNIQUE, topic)) == true_answers(records, topic, key, kind)


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is the same in two looks has settled, and what is damaged in two looks stays so: no test waits."""
    monkeypatch.setattr(log_follower, "SETTLING_SECONDS", 0.0)
    monkeypatch.setattr(log_follower, "DAMAGED_SECONDS", 0.0)
    monkeypatch.setattr(follow, "UNQUEUED_SECONDS", 0.0)


@pytest.fixture
def followed(tmp_path: Path) -> Followed:
    return Followed(tmp_path / "store")


class TestGrowth:
    def test_a_message_is_answered_in_every_way_once_it_is_written(self, followed: Followed) -> None:
        followed.poll()
        written = followed.growing.add(keys="new", unique_key="unique", tags="tag")
        followed.growing.flush()
        arrivals = followed.poll(1)
        assert [a.queues for a in arrivals] == [{("T", 0)}]
        assert followed.store.record_at(written.physical_offset) == written.record
        assert followed.found("new") == [written.physical_offset]
        assert followed.found("unique", KeyKind.UNIQUE) == [written.physical_offset]
        assert followed.found("tag", KeyKind.TAG) == [written.physical_offset]
        queue = followed.store.queues.queue("T", 0)
        assert queue is not None
        assert queue.max_offset == 2
        followed.check()

    def test_nothing_new_changes_nothing(self, followed: Followed) -> None:
        followed.settle()
        before = followed.store.snapshot
        assert followed.poll(5) == []
        assert followed.store.snapshot is before

    def test_the_last_record_counts_when_it_was_the_same_twice(self, followed: Followed) -> None:
        written = followed.growing.add()
        followed.poll(1)
        assert followed.store.record_at(written.physical_offset) is None
        followed.poll(1)
        assert followed.store.record_at(written.physical_offset) == written.record

    def test_a_record_counts_at_once_when_another_one_follows(self, followed: Followed) -> None:
        first, second = followed.growing.add(), followed.growing.add()
        followed.poll(1)
        assert followed.store.record_at(first.physical_offset) == first.record
        assert followed.store.record_at(second.physical_offset) is None

    def test_a_record_counts_at_once_when_its_queue_has_it(self, followed: Followed) -> None:
        written = followed.growing.add()
        followed.growing.flush()
        followed.poll(1)
        assert followed.store.record_at(written.physical_offset) == written.record

    def test_a_message_whose_unit_comes_later_is_told_of_again_when_it_has_come(self, followed: Followed) -> None:
        followed.poll()
        followed.growing.add()
        told = followed.poll(4)
        assert [arrivals.queues for arrivals in told] == [{("T", 0)}] * 3
        queue = followed.store.queues.queue("T", 0)
        assert queue is not None
        assert queue.max_offset == 1
        followed.growing.flush()
        assert [arrivals.queues for arrivals in followed.poll(4)] == [{("T", 0)}]
        queue = followed.store.queues.queue("T", 0)
        assert queue is not None
        assert queue.max_offset == 2

    def test_units_on_their_way_at_the_start_are_told_of(self, tmp_path: Path) -> None:
        followed = Followed(tmp_path / "store")
        followed.growing.add(queue_id=1)
        followed.open()
        assert [arrivals.queues for arrivals in followed.poll(1)] == [None]
        followed.growing.flush()
        assert followed.poll(1)[0].queues is None
        followed.check()
        assert followed.poll(3) == []

    def test_a_topic_and_a_queue_that_are_new_are_there_with_their_first_message(self, followed: Followed) -> None:
        followed.store.queues.queue_ids("T")
        for topic, queue_id in (("New", 0), ("T", 3), ("New", 5)):
            followed.growing.add(topic, queue_id=queue_id)
            followed.growing.flush()
            followed.poll(3)
            queue = followed.store.queues.queue(topic, queue_id)
            assert queue is not None
            assert queue.max_offset == 1
        followed.check()

    def test_a_queue_that_is_made_after_its_message_was_seen_is_found(self, followed: Followed) -> None:
        followed.growing.add("Late", queue_id=2)
        followed.poll(4)
        assert followed.store.queues.queue("Late", 2) is None
        followed.growing.flush()
        followed.poll(1)
        assert followed.store.queues.queue("Late", 2) is not None

    @pytest.mark.parametrize("topic", ["../consumequeue/T", "..", ".", "a/b", "a\0b", "\udcff"])
    def test_a_record_of_any_topic_does_no_harm(self, followed: Followed, topic: str) -> None:
        written = followed.growing.writer.append(topic, queue=False)
        followed.poll(5)
        assert followed.store.record_at(written.physical_offset) == written.record
        assert followed.store.queues.topics() == ["T"]

    def test_messages_that_no_queue_gets_are_followed_by_nothing(self, followed: Followed) -> None:
        for sys_flag in (4, 12):
            followed.growing.add(sys_flag=sys_flag)
            followed.growing.flush()
            followed.poll(4)
        assert followed.poll(1) == []
        followed.check()

    def test_batches_come_too(self, followed: Followed) -> None:
        for _ in range(3):
            followed.growing.writer.append_inner_batch("B", [(b"1", {}), (b"2", {})], keys="b")
            followed.growing.flush()
            followed.poll(4)
        queue = followed.store.queues.queue("B", 0)
        assert queue is not None
        assert queue.max_offset == 6
        assert followed.poll(1) == []
        followed.check()

    def test_segments_roll_over(self, followed: Followed) -> None:
        for number in range(60):
            followed.growing.add(body=b"x" * 100)
            if number % 3 == 0:
                followed.growing.make_segment_in_advance()
            if number % 2 == 0:
                followed.growing.flush()
            followed.poll(3)
        assert len(followed.store.commit_log.segments) > 5
        followed.growing.flush()
        followed.settle()
        followed.check()

    def test_a_blank_that_fills_a_segment_is_stepped_over(self, followed: Followed) -> None:
        followed.growing.writer.roll()
        followed.poll(2)
        followed.growing.writer.roll()
        followed.poll(2)
        followed.growing.add()
        followed.growing.flush()
        followed.settle()
        followed.check()

    def test_much_is_taken_in_piece_by_piece(self, followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(log_follower, "STEP_BYTES", 500)
        for _ in range(40):
            followed.growing.add(body=b"x" * 60)
        followed.growing.flush()
        ends = []
        while (arrivals := followed.follower.poll()) is not None and arrivals.more:
            ends.append(followed.store.commit_log.end)
        assert len(ends) > 10
        assert ends == sorted(set(ends))
        followed.settle()
        followed.check()


class TestTornRecords:
    @pytest.mark.parametrize("share", [0.02, 0.1, 0.3, 0.5, 0.9, 0.99])
    def test_half_a_record_is_no_record_and_the_rest_makes_it_one(
        self, followed: Followed, share: float, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(log_follower, "DAMAGED_SECONDS", 1000.0)
        written = followed.growing.add_torn(share, body=b"x" * 200)
        followed.poll(4)
        assert followed.store.record_at(written.physical_offset) is None
        assert followed.store.commit_log.end == written.physical_offset
        followed.growing.mend()
        followed.growing.flush()
        followed.settle()
        assert followed.found(f"u{1}", KeyKind.UNIQUE) == [written.physical_offset]
        followed.check()

    def test_properties_that_are_not_there_yet_are_waited_for(
        self, followed: Followed, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The body's checksum holds while topic and properties, which are copied last, are still zeros."""
        monkeypatch.setattr(log_follower, "DAMAGED_SECONDS", 1000.0)
        whole = followed.growing.add(keys="late", unique_key=None, tags=None)
        zeros = bytes(len("late") + 1)
        followed.growing.writer.overwrite(whole.physical_offset + whole.size - len(zeros), zeros)
        followed.poll(5)
        assert followed.store.commit_log.end == whole.physical_offset
        followed.growing.writer.overwrite(whole.physical_offset, whole.record)
        followed.poll(3)
        assert followed.found("late") == [whole.physical_offset]

    def test_a_record_with_a_zero_byte_counts_when_its_queue_has_it(self, followed: Followed) -> None:
        written = followed.growing.add(properties={"a": "\0"})
        followed.growing.flush()
        followed.poll(2)
        assert followed.store.record_at(written.physical_offset) == written.record

    def test_a_record_that_changes_is_looked_at_anew(self, followed: Followed) -> None:
        first = followed.growing.add(body=b"first")
        followed.poll(1)
        other = first.record.replace(b"first", b"other")
        crc = followed.growing.writer.append("X", b"other", index=False, queue=False).record[8:12]
        changed = other[:8] + crc + other[12:]
        followed.growing.writer.overwrite(first.physical_offset, changed + bytes(200))
        followed.poll(1)
        assert followed.store.record_at(first.physical_offset) is None
        followed.poll(1)
        assert followed.store.record_at(first.physical_offset) == changed

    def test_a_record_whose_checksum_is_wrong_does_not_hide_those_behind_it(self, followed: Followed) -> None:
        bad = followed.growing.add(body_crc=1)
        good = followed.growing.add(keys="good")
        followed.growing.flush()
        followed.poll(6)
        assert followed.store.record_at(bad.physical_offset) is None
        assert followed.found("good") == [good.physical_offset]

    def test_a_record_that_stays_torn_ends_the_log_and_is_told_of(self, followed: Followed) -> None:
        written = followed.growing.add_torn(0.5)
        followed.poll(4)
        fresh = MessageStore.open(followed.growing.root)
        assert followed.store.problems == fresh.problems
        assert any(f"at physical offset {written.physical_offset}" in problem for problem in fresh.problems)
        followed.growing.mend()
        followed.growing.flush()
        followed.settle()
        assert not any("damaged" in problem for problem in followed.store.problems)
        followed.check()


class TestCutLogs:
    """A broker that crashed cuts its log and goes on; what lies behind the cut is old, whatever it looks like."""

    def cut(self, followed: Followed, kept: int) -> list[Any]:
        """Damage one message of several of one size; the broker will go on in its place."""
        old = [followed.growing.add(keys=f"o{number}", unique_key=f"u{number:04}") for number in range(8)]
        followed.growing.flush()
        writer = followed.growing.writer
        writer.overwrite(old[kept].physical_offset + 40, b"\xff" * 8)
        writer.overwrite(old[kept].physical_offset + 90, b"\xff" * 8)
        followed.open()
        assert followed.store.commit_log.end == old[kept].physical_offset
        followed.poll(3)
        writer.log.end = old[kept].physical_offset
        writer.written = writer.written[: 1 + kept]
        return old

    def test_old_records_behind_the_new_end_are_not_taken_for_new(self, followed: Followed) -> None:
        old = self.cut(followed, 3)
        new = []
        for number in range(3):
            new.append(followed.growing.add(keys=f"n{number}", unique_key=f"v{number:04}", index=False, queue=False))
            assert new[-1].physical_offset == old[3 + number].physical_offset
            followed.poll(4)
            assert followed.store.commit_log.end == new[-1].physical_offset + new[-1].size
        for number, written in enumerate(new):
            assert followed.found(f"n{number}") == [written.physical_offset]
        assert followed.store.record_at(old[6].physical_offset) is None

    def test_several_new_records_at_once_come_in_while_more_are_written(self, followed: Followed) -> None:
        self.cut(followed, 2)
        ends = []
        for number in range(12):
            followed.growing.add(keys=f"n{number}", unique_key=f"v{number:04}", index=False, queue=False)
            followed.growing.add(keys=f"m{number}", unique_key=f"w{number:04}", index=False, queue=False)
            followed.poll(1)
            ends.append(followed.store.commit_log.end)
        assert len(set(ends)) > 5
        followed.poll(4)
        assert followed.store.commit_log.end == followed.growing.log.end
        assert len(followed.found("n11")) == len(followed.found("m0")) == 1

    def test_a_log_that_was_cut_and_written_anew_under_us_is_opened_anew(self, followed: Followed) -> None:
        writer = followed.growing.writer
        old = [followed.growing.add(keys=f"o{number}") for number in range(6)]
        followed.growing.flush()
        followed.settle()
        start = old[2].physical_offset
        writer.overwrite(start, bytes(writer.log.end - start))
        writer.log.end, writer.written = start, writer.written[:3]
        shutil.rmtree(followed.growing.root / "index")
        writer.index.files.clear()
        writer.queues.clear()
        shutil.rmtree(followed.growing.root / "consumequeue")
        for number in range(8):
            writer.append("T", b"another length altogether", keys=f"n{number}", queue_offset=number + 3)
        followed.growing.flush()
        followed.settle()
        followed.check()
        assert followed.found("o5") == []
        assert followed.found("n7") != []


class TestFiles:
    def test_expired_segments_are_gone_and_what_is_left_is_answered(self, followed: Followed) -> None:
        for number in range(80):
            followed.growing.add(queue_id=number % 2, body=b"x" * 50)
        followed.growing.flush()
        followed.settle()
        first = followed.growing.writer.written[0]
        for count in (1, 2, 3):
            followed.growing.expire(count)
            followed.growing.add()
            followed.growing.flush()
            followed.settle()
            assert followed.store.record_at(first.physical_offset) is None
            followed.check()

    def test_an_index_that_was_exchanged_is_taken_over(self, followed: Followed) -> None:
        for _ in range(30):
            followed.growing.add()
        followed.growing.flush()
        followed.settle()
        before = {file.index.file for file in followed.store.snapshot.index.files}
        followed.growing.exchange_index(slots=3, entries=50)
        followed.settle()
        files = followed.store.snapshot.index.files
        assert {file.index.shape.slots for file in files} == {3}
        assert not before & {file.index.file for file in files}
        followed.check()

    def test_an_index_that_is_lost_is_replaced_by_a_scan(
        self, followed: Followed, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(store_watch, "SCANNED_AT_ONCE", 0)
        for _ in range(30):
            followed.growing.add()
        followed.growing.flush()
        followed.settle()
        shutil.rmtree(followed.growing.root / "index")
        followed.follower.watch()
        assert followed.store.snapshot.incomplete is not None
        followed.store.finish_scan()
        assert followed.store.snapshot.incomplete is None
        followed.check()

    @pytest.mark.parametrize("index_entries", [20, 1000])
    def test_what_the_index_comes_to_cover_is_not_kept_in_memory(self, tmp_path: Path, index_entries: int) -> None:
        followed = Followed(tmp_path / "store", index_entries=index_entries)
        for _ in range(20):
            for _ in range(10):
                followed.growing.add()
            followed.growing.flush()
            followed.settle()
        # The records at both ends of a file are scanned.
        assert followed.store.snapshot.tail.entry_count <= 8 * len(followed.store.snapshot.index.files) + 8
        followed.check()

    def test_queues_that_were_exchanged_are_taken_over(self, followed: Followed) -> None:
        for number in range(30):
            followed.growing.add(queue_id=number % 3)
        followed.growing.flush()
        followed.settle()
        followed.check()
        followed.growing.exchange_queues()
        followed.growing.add(queue_id=1)
        followed.growing.flush()
        followed.settle()
        followed.check()

    def test_a_topic_that_was_deleted_is_gone_and_may_come_again(self, followed: Followed) -> None:
        for number in range(10):
            followed.growing.add("Gone", queue_id=number % 2)
        followed.growing.flush()
        followed.settle()
        followed.check()
        writer = followed.growing.writer
        shutil.rmtree(followed.growing.root / "consumequeue" / "Gone")
        for key in [key for key in writer.queues if key[0] == "Gone"]:
            del writer.queues[key]
            writer.next_queue_offset[key] = 0
        followed.settle()
        followed.check()
        assert not followed.store.queues.has_topic("Gone")
        for _ in range(3):
            followed.growing.add("Gone")
        followed.growing.flush()
        followed.settle()
        followed.check()

    def test_configuration_that_changed_is_read_and_what_did_not_is_kept(self, followed: Followed) -> None:
        followed.settle()
        before = followed.store.config
        followed.growing.writer.set_topic("Configured", {"queue.type": "BatchCQ"})
        followed.growing.flush()
        followed.settle()
        assert followed.store.config.topics["Configured"].attributes == {"queue.type": "BatchCQ"}
        assert followed.store.config is not before

    def test_a_broker_that_stops_is_noticed(self, followed: Followed) -> None:
        assert followed.store.state.abort
        followed.growing.writer.close()
        followed.settle()
        assert not followed.store.state.abort

    def test_a_store_that_vanishes_is_an_error_and_is_served_on(self, followed: Followed) -> None:
        root = followed.growing.root
        first = followed.growing.writer.written[0]
        os.rename(root, root.with_name("elsewhere"))
        with pytest.raises(Exception, match="nothing there"):
            followed.follower.watch()
        assert followed.poll(3) is not None
        assert followed.store.record_at(first.physical_offset) == first.record
        os.rename(root.with_name("elsewhere"), root)
        followed.growing.add()
        followed.growing.flush()
        followed.settle()
        followed.check()


class TestLeaks:
    def test_maps_and_descriptors_of_files_that_are_gone_are_let_go(self, tmp_path: Path) -> None:
        """Nothing is held of a file that was deleted, however often files were rolled over, expired and exchanged."""
        followed = Followed(tmp_path / "store", index_entries=12)
        growing = followed.growing
        most_files = 0
        for step in range(60):
            for number in range(12):
                growing.add(queue_id=number % 2, body=b"x" * 90)
            growing.flush()
            followed.settle()
            followed.check_queues()
            if step > 3:
                growing.expire(1 + step % 2)
            if step % 9 == 8:
                growing.exchange_index()
                growing.writer.index.files.clear()
                growing.exchange_queues()
            followed.settle()
            maps, descriptors = held(growing.root)
            files = {str(path) for path in growing.root.rglob("*") if path.is_file()}
            assert set(maps) <= files
            assert set(descriptors) <= files
            assert len(maps) == len(set(maps))
            assert len(descriptors) <= 2 * len(maps), "a map of Python's has a descriptor of its own"
            most_files = max(most_files, len(files))
        assert len(growing.log.segments) < most_files < 200


def held(root: Path) -> tuple[list[str], list[str]]:
    """Files under a directory that this process maps, and those it has open, deleted ones as the kernel tells them."""
    lines = [line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines()]
    maps = [fields[5] for fields in lines if len(fields) == 6 and fields[5].startswith(str(root))]
    opened = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            opened.append(os.readlink(f"/proc/self/fd/{name}"))
    return maps, [path for path in opened if path.startswith(str(root))]


steps = st.lists(
    st.sampled_from(
        ["add", "add", "add", "other", "big", "prepared", "batch", "torn", "mend", "flush", "flush", "poll", "poll",
         "watch", "roll", "advance", "expire", "index", "lose index", "queues", "refresh", "many"]
    ),
    max_size=40,
)  # fmt: skip


class TestAnySequence:
    """After any sequence of steps the answers are those of a store that is opened then."""

    @settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
    @given(
        steps,
        st.sampled_from(["5.5", "5.3"]),
        st.sampled_from([1024, 4096]),
        st.sampled_from([3, 20, 1000]),
        st.sampled_from([20, 100, 2000]),
    )
    def test_following_is_as_good_as_opening(
        self,
        tmp_path_factory: pytest.TempPathFactory,
        taken: list[str],
        profile: str,
        segment_size: int,
        index_entries: int,
        queue_file_size: int,
    ) -> None:
        followed = Followed(
            tmp_path_factory.mktemp("steps") / "store",
            profile=profile,
            segment_size=segment_size,
            index_entries=index_entries,
            queue_file_size=queue_file_size,
        )
        for step in taken:
            if followed.growing.is_torn and step not in ("mend", "poll", "watch"):
                followed.growing.mend()
            STEPS[step](followed)
        followed.growing.mend()
        followed.growing.flush()
        followed.settle()
        followed.store.finish_scan()
        followed.check()


def _many(followed: Followed) -> None:
    for number in range(15):
        followed.growing.add(queue_id=number % 3)


def _lose_index(followed: Followed) -> None:
    shutil.rmtree(followed.growing.root / "index", ignore_errors=True)


STEPS: dict[str, Callable[[Followed], Any]] = {
    "add": lambda followed: followed.growing.add(queue_id=len(followed.growing.writer.written) % 2),
    "other": lambda followed: followed.growing.add("Other", keys="all Aa", tags=None),
    "big": lambda followed: followed.growing.add(body=b"x" * 700),
    "prepared": lambda followed: followed.growing.add(sys_flag=4),
    "batch": lambda followed: followed.growing.writer.append_inner_batch("Batch", [(b"1", {}), (b"2", {})], keys="b"),
    "torn": lambda followed: followed.growing.add_torn(0.6),
    "mend": lambda followed: followed.growing.mend(),
    "flush": lambda followed: followed.growing.flush(),
    "poll": lambda followed: followed.follower.poll(),
    "watch": lambda followed: followed.follower.watch(),
    "roll": lambda followed: followed.growing.writer.roll(),
    "advance": lambda followed: followed.growing.make_segment_in_advance(),
    "expire": lambda followed: followed.growing.expire(),
    "index": lambda followed: followed.growing.exchange_index(),
    "lose index": _lose_index,
    "queues": lambda followed: followed.growing.flush() or followed.growing.exchange_queues(),
    "refresh": lambda followed: followed.store.refresh(),
    "many": _many,
}


def test_options_hold_for_what_comes_later(tmp_path: Path) -> None:
    growing = GrowingStore(tmp_path / "store")
    growing.add()
    growing.flush()
    store = MessageStore.open(growing.root, StoreOptions(index_slots=7, index_entries=20, scan_budget=0))
    follower = StoreFollower(store)
    written = growing.add(keys="new")
    growing.flush()
    for _ in range(3):
        follower.poll()
    follower.watch()
    assert store.query(KeyQuery("T", "new")).physical_offsets == (written.physical_offset,)
