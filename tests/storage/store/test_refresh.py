"""A store whose files come, go and are exchanged; its state; answers that are exact."""

import os
import shutil
import tempfile
import time
import weakref
from itertools import product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oracles
from doctoring import held_lock
from examples import examples
from growing_store import Followed, GrowingStore, held
from kept_store import assert_all_found, incomplete, written
from oracles import END_OF_TIME
from protocol.errors import NotAStore
from protocol.message import decode_messages
from protocol.question import KeyKind, Question
from queue_stores import queue_of
from storage.layout.store_config import StoreConfig
from storage.store import _store_watch
from storage.store.file_sizes import file_sizes
from storage.store.message_store import MessageStore, StoreOptions
from storage.store.state_place import default_state_directory
from storage.store.store_state import StoreIdentity, StoreState, infer_identity, read_store_state
from store_queries import KINDS
from store_writer import StoreWriter
from strategies import KEYS, TAGS, TOPICS, batch_plans, store_plans


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
        assert queue_of(followed.store.queues).max_offset == 2
        followed.check()

    def test_a_message_whose_unit_comes_later_is_told_of_again_when_it_has_come(self, followed: Followed) -> None:
        followed.poll()
        followed.growing.add()
        told = followed.poll(4)
        assert [arrivals.queues for arrivals in told] == [{("T", 0)}] * 3
        assert queue_of(followed.store.queues).max_offset == 1
        followed.growing.flush()
        assert [arrivals.queues for arrivals in followed.poll(4)] == [{("T", 0)}]
        assert queue_of(followed.store.queues).max_offset == 2

    def test_a_record_of_any_topic_does_no_harm(self, followed: Followed) -> None:
        for topic in ("../consumequeue/T", "..", ".", "a/b", "a\0b", "\udcff"):
            written = followed.growing.writer.append(topic, queue=False)
            followed.poll(5)
            assert followed.store.record_at(written.physical_offset) == written.record
        assert followed.store.queues.topics() == ["T"]

    def test_messages_that_come_at_once_to_the_end_of_a_file_and_to_the_next_one_are_all_there(self, followed) -> None:
        """Although the last message of all is one of another queue, so that nobody looks again."""
        for count in range(2, 29):
            followed.growing.add(queue_id=0)
            if count % 3 != 1:
                continue
            followed.growing.add(queue_id=1)
            followed.growing.flush()
            assert followed.poll()
            assert queue_of(followed.store.queues).max_offset == count
        followed.check()


class TestFiles:
    def test_a_segment_that_was_cut_is_noticed_although_no_name_came_or_went(self, followed: Followed) -> None:
        for _ in range(80):
            followed.growing.add(body=b"x" * 50)
        followed.growing.flush()
        followed.settle()
        first, second = followed.store.commit_log.segments[:2]
        grow_old(followed.growing.root)
        followed.follower.watch()
        assert not followed.follower.watch()
        os.truncate(first.file.path, 700)
        assert followed.follower.watch()
        assert followed.store.commit_log.holes == ((700, second.base_offset),)
        written = followed.growing.writer.written[1]
        assert followed.store.record_at(written.physical_offset) == written.record

    @pytest.mark.parametrize("part", ["", "commitlog/00000000000000000000"])
    def test_a_store_that_is_taken_away_is_served_on_until_it_is_back(self, followed, tmp_path, part) -> None:
        followed.settle()
        written = followed.growing.writer.written[0]
        os.rename(followed.growing.root / part, tmp_path / "elsewhere")
        grow_old(followed.growing.root)
        for _ in range(3):
            with pytest.raises(NotAStore):
                followed.follower.watch()
            assert followed.store.record_at(written.physical_offset) == written.record
        os.rename(tmp_path / "elsewhere", followed.growing.root / part)
        followed.growing.add()
        followed.growing.flush()
        followed.settle()
        followed.check()

    def test_keys_of_a_segment_that_comes_back_are_found(self, tmp_path: Path) -> None:
        writer = written(tmp_path, 200)
        shutil.rmtree(writer.root / "index")
        lost = writer.log.segments[sorted(writer.log.segments)[3]]
        aside = lost.rename(tmp_path / "aside")
        store = MessageStore.open(writer.root, StoreOptions(scan_budget=0))
        store.finish_scan()
        assert "no segment holds" in (incomplete(store) or "")
        aside.rename(lost)
        assert store.renew()
        store.finish_scan()
        assert incomplete(store) is None
        assert_all_found(store, writer.records, writer.records[::3])

    def test_a_broker_that_stops_is_noticed(self, followed: Followed) -> None:
        assert followed.store.state.abort
        followed.growing.writer.close()
        followed.settle()
        assert not followed.store.state.abort


def grow_old(root: Path) -> None:
    for path in filter(Path.exists, (root, *root.rglob("*"))):
        os.utime(path, ns=(0, time.time_ns() - 2 * _store_watch.YOUNG_NS))


@pytest.mark.usefixtures("hurried")
def test_maps_and_descriptors_of_files_that_are_gone_are_let_go(tmp_path: Path) -> None:
    """Nothing is held of a file that was deleted, however often files were rolled over, expired and exchanged."""
    followed = Followed(tmp_path / "store", index_entries=12)
    growing = followed.growing
    most_files = 0
    for step in range(9):
        for number in range(12):
            growing.add(queue_id=number % 2, body=b"x" * 90)
        growing.flush()
        followed.settle()
        followed.check_queues()
        if step > 3:
            growing.expire(1 + step % 2)
        if step % 4 == 3:
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


@pytest.mark.usefixtures("hurried")
def test_a_queue_file_that_goes_after_its_segment_was_missed_is_let_go(tmp_path, monkeypatch) -> None:
    """A broker removes queue files some time after segments, one by one; perhaps nothing else ever changes."""
    monkeypatch.setattr(_store_watch, "YOUNG_NS", 0)  # directories are as good as old
    followed = Followed(tmp_path / "store")
    for _ in range(12):
        followed.growing.add()
    followed.growing.flush()
    followed.settle()
    followed.check_queues()
    assert not followed.follower.watch()
    first = min((tmp_path / "store/consumequeue/T/0").iterdir())
    assert str(first) in held(tmp_path)[0]
    first.unlink()
    followed.follower.watch()
    maps, descriptors = held(tmp_path)
    assert not [path for path in (*maps, *descriptors) if path.endswith(" (deleted)")]
    followed.check_queues()
    assert not followed.follower.watch(), "nothing else has changed"


@pytest.mark.parametrize("change", [
    lambda store, growing: store.refresh(),
    lambda store, growing: growing.exchange_index() or store.renew(),
    lambda store, growing: growing.expire() or store.renew(),
], ids=["growth", "index", "expiry"])  # fmt: skip
def test_a_snapshot_goes_with_the_next_one(tmp_path, change) -> None:
    growing = GrowingStore(tmp_path / "store")
    for _ in range(42):
        growing.add(body=b"x" * 100)
    growing.flush()
    store = MessageStore.open(growing.root)
    before = weakref.ref(store.snapshot)
    growing.add()
    change(store, growing)
    assert before() is None


@pytest.mark.untraced
@settings(max_examples=examples(4), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=store_plans(all_indexed=True), data=st.data())
def test_random_stores_answer_like_the_oracle_that_scans_everything(plan, data, tmp_path_factory) -> None:
    root = tmp_path_factory.mktemp("random")
    if plan.options["profile"] == "5.3":
        # Tags are then found through queues, which never hold what was only prepared.
        plan.messages = [{**m, "sys_flag": 8 if m["sys_flag"] == 4 else m["sys_flag"]} for m in plan.messages]
    records = plan.write(root).records
    store = MessageStore.open(root) if plan.messages else None
    if store is None:
        return
    stamps = [record.store_timestamp for record in records]
    offsets = [record.physical_offset for record in records]
    for _ in range(12):
        topic = data.draw(st.sampled_from(TOPICS))
        kind = data.draw(st.sampled_from(list(KINDS)))
        key = data.draw(st.sampled_from([*KEYS, *(tag for tag in TAGS if tag), "uniq-1", "Aa", "BB", "k1", "a"]))
        begin = data.draw(st.one_of(st.just(0), st.sampled_from(stamps).map(lambda stamp: stamp - 1)))
        end = data.draw(st.one_of(st.just(END_OF_TIME), st.sampled_from(stamps)))
        maximum = data.draw(st.integers(0, 5) | st.just(64))
        before = data.draw(st.one_of(st.just(END_OF_TIME), st.sampled_from(offsets)))
        answer = store.query(Question(topic, key, kind, maximum, begin, end, before))
        window = {"kind": KINDS[kind], "begin": begin, "end": end, "before_offset": before}
        expected = oracles.query(records, topic, key, maximum=maximum, **window)
        assert list(answer.physical_offsets) == expected
        everything = oracles.query(records, topic, key, maximum=10_000, **window)
        assert answer.truncated == (maximum > 0 and len(everything) > maximum)
        assert [m.physical_offset for m in decode_messages(answer.records)] == expected


@settings(max_examples=examples(4))
@given(plan=batch_plans, lost=st.booleans())
def test_a_batch_is_found_by_what_its_messages_carry(plan, lost) -> None:
    """Whether index files cover it or not: brokers index the record alone."""
    with tempfile.TemporaryDirectory() as directory:
        writer = plan.write(Path(directory))
        if lost:
            shutil.rmtree(writer.root / "index", ignore_errors=True)
        store = MessageStore.open(writer.root)
        unique = ("uniq-1", "Aa", "k1", "batch-0", "batch-1")
        texts = {KeyKind.KEY: (*KEYS, "batch-0"), KeyKind.UNIQUE: unique, KeyKind.TAG: ("TagA", "Aa")}
        for kind, topic in product(texts, ("B", "T")):
            for text in texts[kind]:
                question = Question(topic, text, kind)
                answer = store.query(question)
                found = [each for record in decode_messages(answer.records) for each in question.messages_in(record)]
                # A message before the place where a batch breaks off is found with all that there is of it.
                named = {(each.physical_offset, each.queue_offset) for each in found if not breaks_off(each)}
                assert named == {
                    (each.physical_offset, each.queue_offset)
                    for record in writer.records
                    for each in oracles.messages_of(record)
                    if each.topic == topic and not breaks_off(each)
                    if any(oracles.has_key(one, text, KINDS[kind]) for one in (each, record))
                }


def breaks_off(message):
    """Whether it is a batch that could not be taken apart, of which the first messages can be read in place."""
    return message.sys_flag & 0xC1 == 0xC0


def test_a_held_lock_is_seen_and_not_taken(tmp_path) -> None:
    (tmp_path / "lock").write_text("lock")
    (tmp_path / "abort").write_text("4711")
    with held_lock(tmp_path) as pid:
        for _ in range(2):
            state = read_store_state(tmp_path)
            assert state == StoreState(abort=True, lock_held=True, lock_pid=pid, broker_pid=4711)
    assert state.is_live
    assert not state.has_crashed


@pytest.mark.parametrize(("files", "expected"), [
    ({}, StoreState(False, False, 0, None)),
    ({"lock": "lock"}, StoreState(False, False, 0, None)),
    ({"lock": "lock", "abort": "17\n"}, StoreState(True, False, 0, 17)),
    ({"abort": ""}, StoreState(True, False, 0, None)),
    ({"abort": "no number"}, StoreState(True, False, 0, None)),
    ({"abort": "9" * 5000}, StoreState(True, False, 0, None)),
])  # fmt: skip
def test_a_store_that_nobody_holds(files, expected, tmp_path) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    state = read_store_state(tmp_path)
    assert state == expected
    assert state.has_crashed == state.abort


def identity(root, *configs):
    names = ("topicName", "perm", "readQueueNums", "writeQueueNums")
    topics = {name: dict(zip(names, (name, perm, queues, queues), strict=True)) for name, perm, queues in configs}
    StoreWriter(root).write_config("topics.json", {"topicConfigTable": topics})
    return infer_identity(StoreConfig.load(root), None)


@pytest.mark.parametrize(("made", "expected"), [
    ([("rmq_sys_REVIVE_LOG_east", 6, 8), ("rmq_sys_SYNC_BROKER_MEMBER_b 7", 1, 1)], StoreIdentity("east", "b 7")),
    ([("west", 7, 16), ("broker-9", 7, 1), ("T", 6, 1), ("TBW102x", 7, 8)], StoreIdentity("west", "broker-9")),
    ([("south_REPLY_TOPIC", 6, 1), ("one", 7, 16), ("o", 7, 16)], StoreIdentity("south", "broker-a")),
])  # fmt: skip
def test_topics_that_a_broker_makes_name_it(tmp_path, made, expected) -> None:
    assert identity(tmp_path, *made) == expected


@pytest.mark.parametrize("is_new", [True, False], ids=["5.x", "4.x"])
def test_of_several_names_the_last_is_taken_and_all_are_said(is_new, tmp_path) -> None:
    prefix, cluster = ("rmq_sys_SYNC_BROKER_MEMBER_", "rmq_sys_REVIVE_LOG_") if is_new else ("", "")
    found = identity(tmp_path, *((f"{prefix}{name}", 7, 1) for name in ("old", "new")),
                     *((f"{cluster}{name}", 7, 16) for name in "ab"))  # fmt: skip
    assert (found.broker_name, found.cluster) == ("new", "b")
    assert ["old, new" in each or "a, b" in each for each in found.ambiguities] == [True, True]
    assert "--cluster" in found.ambiguities[0]
    assert "--broker-name" in found.ambiguities[1]
    one = identity(tmp_path, ("rmq_sys_SYNC_BROKER_MEMBER_new", 6, 1), ("x", 7, 1), ("y", 7, 1), ("c", 7, 16))
    assert one == StoreIdentity("c", "new")


def test_the_default_lies_below_the_users_state_directory(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    identity = StoreIdentity("DefaultCluster", "broker-a")
    path = default_state_directory(tmp_path / "store", identity)
    assert path.parent == tmp_path / "rocketlens"
    assert path.name.startswith("DefaultCluster-broker-a-")
    monkeypatch.setenv("XDG_STATE_HOME", "relative/is/ignored")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    path = default_state_directory(tmp_path / "store", identity)
    assert path.parent == tmp_path / "home" / ".local" / "state" / "rocketlens"
    # Names of the store cannot lead elsewhere.
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = default_state_directory(tmp_path, StoreIdentity("../../etc", "x" * 5000))
    assert path.parent == tmp_path / "rocketlens"
    assert len(path.name) < 200


def test_a_store_has_the_sizes_that_its_broker_was_given_and_what_is_not_there_has_none(g1_store, tmp_path) -> None:
    assert file_sizes(MessageStore.open(g1_store).snapshot) == {
        "mappedFileSizeCommitLog": 131072, "mappedFileSizeConsumeQueue": 2000, "maxHashSlotNum": 97, "maxIndexNum": 150,
    }  # fmt: skip
    with StoreWriter(tmp_path, segment_size=4096) as writer:
        writer.append("T", b"alone")
    for tree in ("consumequeue", "index"):
        shutil.rmtree(tmp_path / tree)
    assert file_sizes(MessageStore.open(tmp_path).snapshot) == {"mappedFileSizeCommitLog": 4096}
