"""The peers' known bugs (known-bugs §1, §3), each as the test that would have caught it."""

import shutil
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oracles
from examples import examples
from golden_store import GOLDEN, log_folders, unpack
from kept_store import assert_all_found
from protocol.message import decode_message
from protocol.message_id import decode_message_id
from protocol.question import KeyKind, Question
from storage.store.message_store import MessageStore, StoreOptions
from store_files import write_file
from store_queries import found, open_written
from store_writer import START_TIMESTAMP, StoreWriter

T0 = START_TIMESTAMP


class TestKnownBugs:
    """known-bugs §1 A to E and those of §3 that concern key and id queries."""

    def test_a_message_late_in_its_second_is_found_by_its_milliseconds(self, tmp_path) -> None:  # A
        writer = StoreWriter(tmp_path)
        writer.append("T", keys="first", store_timestamp=T0)
        late = writer.append("T", keys="late", store_timestamp=T0 + 999)
        store = open_written(writer, tmp_path)
        window = {"begin_timestamp": T0 + 500, "end_timestamp": T0 + 2000}
        assert found(store, "T", "late", **window) == [late.physical_offset]

    def test_a_clock_that_stepped_back_hides_nothing(self, tmp_path) -> None:  # B
        writer = StoreWriter(tmp_path, index_slots=1, index_entries=4)
        writer.append("T", keys="x", store_timestamp=T0)
        wanted = writer.append("T", keys="x", store_timestamp=T0 + 100_000)
        writer.append("T", keys="x", store_timestamp=T0 + 10_000)
        for number in range(5):  # whole newer files, each begun before the window
            writer.append("T", keys=f"other{number}", store_timestamp=T0 + 20_000)
        store = open_written(writer, tmp_path)
        assert len(writer.index_paths()) >= 2
        window = {"begin_timestamp": T0 + 50_000, "end_timestamp": T0 + 200_000}
        assert found(store, "T", "x", **window) == [wanted.physical_offset]

    def test_collisions_beyond_the_cap_hide_nothing(self, tmp_path) -> None:  # C
        writer = StoreWriter(tmp_path)
        real = writer.append("T", keys="Aa")
        for _ in range(64):
            writer.append("T", keys="BB")
        store = open_written(writer, tmp_path)
        answer = store.query(Question("T", "Aa", KeyKind.KEY, 64))
        assert answer.physical_offsets == (real.physical_offset,)
        assert answer.search.refused >= 64

    def test_a_key_whose_hash_is_the_smallest_int_is_found(self, tmp_path) -> None:  # E
        topic, key = smallest_hash()
        assert oracles.java_hash(f"{topic}#{key}") == -(2**31)
        writer = StoreWriter(tmp_path)
        writer.append(topic, keys="other")
        wanted = writer.append(topic, keys=key)
        store = open_written(writer, tmp_path)
        assert found(store, topic, key) == [wanted.physical_offset]

    @pytest.mark.parametrize("maximum", [0, -(2**31)])
    def test_no_maximum_gives_nothing(self, g1_store, maximum) -> None:  # rmq#7948
        assert MessageStore.open(g1_store).query(Question("TopicTest", "hotkey", maximum=maximum)).count == 0


def smallest_hash() -> tuple[str, str]:
    """A topic and a key whose joined string hashes to the smallest int: its last characters are digits, base 31."""
    topic, prefix, digits = "T", "k", 7
    fixed = oracles.java_hash(f"{topic}#{prefix}") * 31**digits + sum(64 * 31**power for power in range(digits))
    rest = (2**31 - fixed) % 2**32
    characters = [chr(64 + rest // 31**power % 31) for power in range(digits - 1, -1, -1)]
    return topic, prefix + "".join(characters)


def test_an_index_of_another_log_covers_nothing(tmp_path) -> None:  # rmq#8041
    mine, other = tmp_path / "mine", tmp_path / "other"
    for root, prefix in ((mine, "mine"), (other, "longer-prefix")):
        with StoreWriter(root) as writer:
            for number in range(60):
                writer.append("T", keys=f"{prefix}{number}")
    shutil.rmtree(mine / "index")
    shutil.copytree(other / "index", mine / "index")
    store = MessageStore.open(mine)
    assert all(len(found(store, "T", f"mine{number}")) == 1 for number in range(60))
    assert any("do not belong to this log" in problem for problem in store.problems)


def fill(writer: StoreWriter, count: int, name: str = "k") -> None:
    for number in range(count):
        writer.append("T", b"x" * 30, keys=f"{name}{number} all", unique_key=f"u{name}{number}", tags="t")


def check_however_opened(root, records) -> None:
    """As commands see a store, and as a server does: first at a glance, which may lack something and says so."""
    assert records
    assert_all_found(MessageStore.open(root), records)
    served = MessageStore.open(root, StoreOptions(scan_budget=0, check_budget=0))
    for record in records[::5]:
        for key in oracles.split_keys(record.properties["KEYS"]):
            answer = served.query(Question(record.topic, key, KeyKind.KEY, maximum=500))
            seen, right = answer.physical_offsets, oracles.query(records, record.topic, key, kind="K", maximum=500)
            assert list(seen) == right or (answer.incomplete and set(seen) < set(right))
    served.finish_scan()
    assert_all_found(served, records)


@pytest.mark.untraced
class TestCrash:
    @settings(max_examples=examples(6), suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.data())
    def test_pages_of_the_index_that_were_not_flushed_hide_nothing(self, data, tmp_path_factory) -> None:
        """rmq#4463: any page may be missing by itself."""
        root = tmp_path_factory.mktemp("torn")
        with StoreWriter(root, index_slots=1500, index_entries=500) as writer:
            fill(writer, 80)
        path = data.draw(st.sampled_from(writer.index_paths()))
        size = path.stat().st_size
        for page in data.draw(st.sets(st.integers(0, size // 4096), min_size=1, max_size=3)):
            write_file(path, size, {4096 * page: bytes(min(4096, size - 4096 * page))})
        check_however_opened(root, writer.records)

    @pytest.mark.parametrize("cut", [1, 41])
    def test_a_store_copied_while_it_was_written_has_every_key(self, tmp_path, cut) -> None:
        """rmq#8007, #3868, PR#8018: the index is as of one moment, the log as of a later or an earlier one."""
        writer = StoreWriter(tmp_path / "live", segment_size=4096, index_entries=50)
        fill(writer, cut)
        writer.flush()
        shutil.copytree(writer.root / "index", tmp_path / "early" / "index")
        shutil.copytree(writer.root / "commitlog", tmp_path / "late" / "commitlog")
        early = writer.records
        fill(writer, 60, "more")
        writer.flush()
        shutil.copytree(writer.root / "commitlog", tmp_path / "early" / "commitlog")
        shutil.copytree(writer.root / "index", tmp_path / "late" / "index")
        for name, records in (("early", writer.records), ("late", early)):
            (tmp_path / name / "abort").write_text("1")
            store = MessageStore.open(tmp_path / name)
            assert store.commit_log.end == records[-1].physical_offset + records[-1].total_size
            check_however_opened(tmp_path / name, records)

    def test_a_log_that_restarts_below_the_index_has_every_key(self, tmp_path) -> None:
        """rmq#8041: a broker indexes nothing below the offset where its index ends."""
        with StoreWriter(tmp_path, index_entries=1000) as writer:
            fill(writer, 60)
            cut = writer.written[30].physical_offset
            writer.overwrite(cut, bytes(writer.log.end - cut))
            writer.log.end, writer.written = cut, writer.written[:30]
            before = len(writer.index.files[0].entries)
            for number in range(12):
                writer.append("T", b"anew", keys=f"new{number} all", tags="t")
            assert len(writer.index.files[0].entries) == before
        check_however_opened(tmp_path, writer.records)
        for number in range(40):
            writer.append("T", b"beyond", keys=f"beyond{number} all", tags="t")
        assert len(writer.index.files[0].entries) > before
        writer.close()
        check_however_opened(tmp_path, writer.records)


def test_many_unreadable_newest_hits_do_not_hide_an_older_one(tmp_path) -> None:
    """rust `query_messages`, by reading: it gave up after two passes."""
    writer = StoreWriter(tmp_path, index_entries=5000)
    wanted = writer.append("T", b"good", keys="x")
    for _ in range(700):
        writer.append("T", b"bad", keys="x", body_crc=1)
    writer.roll()
    writer.append("T", b"the damage does not lie at the log's end", keys="y")
    store = open_written(writer, tmp_path)
    assert store.commit_log.end == writer.log.end
    answer = store.query(Question("T", "x", KeyKind.KEY))
    assert (answer.physical_offsets, answer.search.refused) == ((wanted.physical_offset,), 700)


@pytest.mark.parametrize("name", ["g2-hosts", "g2-dledger-mixed"])
def test_every_recorded_offset_id_resolves_and_no_other_host_does(tmp_path, name) -> None:
    """rmq#656, rust#10417, dash#4554; IPv6 hosts in g2-hosts."""
    folder = GOLDEN / "g2" / name
    root = unpack("store", tmp_path, archives=folder)
    directories = tuple(log_folders(root))
    store = MessageStore.open(root, StoreOptions(commit_log_directories=directories))
    asked = 0
    for line in (folder / "produced.tsv").read_text(encoding="utf-8").splitlines():
        for text in line.split("\t")[3].split(","):
            if len(text) in (32, 56):
                record = store.message_by_offset_id(decode_message_id(text))
                assert decode_message(record).offset_message_id == text
                other = text[:-17] + ("0" if text[-17] != "0" else "1") + text[-16:]  # another port
                assert store.message_by_offset_id(decode_message_id(other)) is None
                asked += 1
    assert asked > 10
    records = oracles.read_log(directories)
    assert_all_found(store, [record for record in records if record.sys_flag & 0xC0 == 0])


def test_queries_during_a_refresh_are_answered_from_one_of_the_two(tmp_path) -> None:
    """rmq#9069, ROCKETMQ-25, ROCKETMQ-261: files come and go while they are read."""
    writer = StoreWriter(tmp_path, segment_size=2048, index_entries=60)
    fill(writer, 40)
    store = open_written(writer, tmp_path)
    wrong: list[object] = []
    stop = threading.Event()
    known = {record.physical_offset: record.total_size for record in writer.records}

    def ask() -> None:
        while not stop.is_set():
            answer = store.query(Question("T", "all", KeyKind.KEY))
            offsets = answer.physical_offsets
            if list(offsets) != sorted(set(offsets)) or len(answer.records) != sum(known[o] for o in offsets):
                wrong.append(offsets)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for number in range(12):
            for step in range(4):
                written = writer.append("T", b"x" * 30, keys=f"more{number}-{step} all", tags="t")
                known[written.physical_offset] = written.size
            if number == 4:
                writer.log.segments.pop(0).unlink()
            writer.flush()
            store.refresh()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert wrong == []
    assert store.query(Question("T", "all", KeyKind.KEY)).count == 64
