"""The peers' known bugs, each as the test that would have caught it; damaged and missing index files among them."""

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oracles
from examples import examples
from protocol.question import KeyKind, Question
from storage.store.message_store import MessageStore
from store_files import write_file
from store_queries import KINDS, found, open_written
from store_writer import START_TIMESTAMP, StoreWriter

T0 = START_TIMESTAMP


class TestKnownBugs:
    """known-bugs §1 A to E and those of §3 that concern key and id queries."""

    def test_a_message_late_in_its_second_is_found_by_its_milliseconds(self, tmp_path: Path) -> None:  # A
        writer = StoreWriter(tmp_path)
        writer.append("T", keys="first", store_timestamp=T0)
        late = writer.append("T", keys="late", store_timestamp=T0 + 999)
        store = open_written(writer, tmp_path)
        window = {"begin_timestamp": T0 + 500, "end_timestamp": T0 + 2000}
        assert found(store, "T", "late", **window) == [late.physical_offset]

    def test_nothing_outside_the_window_is_found(self, tmp_path: Path) -> None:  # A2
        writer = StoreWriter(tmp_path)
        writer.append("T", keys="first", store_timestamp=T0)
        writer.append("T", keys="late", store_timestamp=T0 + 999)
        store = open_written(writer, tmp_path)
        assert found(store, "T", "late", begin_timestamp=T0, end_timestamp=T0 + 500) == []

    def test_a_clock_that_stepped_back_hides_nothing(self, tmp_path: Path) -> None:  # B
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

    def test_collisions_beyond_the_cap_hide_nothing(self, tmp_path: Path) -> None:  # C
        writer = StoreWriter(tmp_path)
        real = writer.append("T", keys="Aa")
        for _ in range(64):
            writer.append("T", keys="BB")
        store = open_written(writer, tmp_path)
        answer = store.query(Question("T", "Aa", KeyKind.KEY, 64))
        assert answer.physical_offsets == (real.physical_offset,)
        assert answer.search.refused >= 64

    @pytest.mark.parametrize("pointer", [3, 2, 2**31 - 1, -1, -(2**31)])
    def test_a_damaged_pointer_neither_loops_nor_hides(self, tmp_path: Path, pointer: int) -> None:  # D
        writer = StoreWriter(tmp_path, index_slots=1, index_entries=150)
        written = [writer.append("T", keys="x") for _ in range(3)]
        writer.close()
        entry = 40 + 4 * 1 + 20 * 1
        write_file(
            writer.index_paths()[0],
            writer.index_paths()[0].stat().st_size,
            {entry + 16: pointer.to_bytes(4, "big", signed=True)},
        )
        store = MessageStore.open(tmp_path)
        assert found(store, "T", "x") == [message.physical_offset for message in written]
        assert any("scanned from the log" in problem for problem in store.problems)

    def test_a_key_whose_hash_is_the_smallest_int_is_found(self, tmp_path: Path) -> None:  # E
        topic, key = smallest_hash()
        assert oracles.java_hash(f"{topic}#{key}") == -(2**31)
        writer = StoreWriter(tmp_path)
        writer.append(topic, keys="other")
        wanted = writer.append(topic, keys=key)
        store = open_written(writer, tmp_path)
        assert found(store, topic, key) == [wanted.physical_offset]

    def test_colliding_topics_are_told_apart(self, tmp_path: Path) -> None:  # rmq#3613
        writer = StoreWriter(tmp_path)
        places = {
            (topic, key): writer.append(topic, keys=key).physical_offset
            for topic in ("AaTopic", "BBTopic")
            for key in ("Aa", "BB")
        }
        store = open_written(writer, tmp_path)
        for (topic, key), place in places.items():
            assert found(store, topic, key) == [place]

    def test_every_resend_of_a_unique_key_is_found(self, tmp_path: Path) -> None:  # rmq#2735, #6917
        writer = StoreWriter(tmp_path)
        written = [writer.append("T", unique_key="U1", queue_id=queue) for queue in range(3)]
        store = open_written(writer, tmp_path)
        assert found(store, "T", "U1", KeyKind.UNIQUE) == [message.physical_offset for message in written]

    def test_an_answer_holds_the_hits_and_nothing_else(self, tmp_path: Path) -> None:  # rust#10422
        writer = StoreWriter(tmp_path)
        wanted = []
        for number in range(30):
            written = writer.append("T", b"x" * number, keys="hit" if number % 3 == 0 else "miss")
            wanted += [written] if number % 3 == 0 else []
        store = open_written(writer, tmp_path)
        answer = store.query(Question("T", "hit"))
        assert answer.records == b"".join(message.record for message in wanted)

    def test_a_repeated_key_is_one_result(self, tmp_path: Path) -> None:  # rust#10428
        writer = StoreWriter(tmp_path)
        wanted = writer.append("T", keys="a a b", unique_key="a")
        store = open_written(writer, tmp_path)
        for kind in (KeyKind.ANY, KeyKind.KEY, KeyKind.UNIQUE):
            assert found(store, "T", "a", kind) == [wanted.physical_offset]

    def test_unreadable_newest_hits_do_not_hide_an_older_one(self, tmp_path: Path) -> None:
        writer = StoreWriter(tmp_path)
        wanted = writer.append("T", b"good", keys="x")
        for _ in range(200):
            writer.append("T", b"bad", keys="x", body_crc=1)
        store = open_written(writer, tmp_path)
        assert found(store, "T", "x") == [wanted.physical_offset]

    @pytest.mark.parametrize("maximum", [0, -1, -(2**31)])
    def test_no_maximum_gives_nothing(self, g1_store: Path, maximum: int) -> None:  # rmq#7948
        assert MessageStore.open(g1_store).query(Question("TopicTest", "hotkey", maximum=maximum)).count == 0

    @pytest.mark.parametrize("relation", range(13))
    def test_all_relations_of_file_and_window_are_answered(self, tmp_path: Path, relation: int) -> None:  # rmq#9233
        """Allen's thirteen relations between the file's span [100, 200] s and the window."""
        begin, end = [
            (0, 50), (0, 100), (50, 150), (50, 200), (50, 250), (100, 150), (100, 200), (100, 250), (120, 180),
            (150, 200), (150, 250), (200, 250), (220, 250),
        ][relation]  # fmt: skip
        writer = StoreWriter(tmp_path)
        written = [writer.append("T", keys="x", store_timestamp=T0 + s * 1000) for s in range(100, 201, 10)]
        store = open_written(writer, tmp_path)
        window = {"begin_timestamp": T0 + begin * 1000, "end_timestamp": T0 + end * 1000}
        expected = [m.physical_offset for m in written if begin <= (m.store_timestamp - T0) // 1000 <= end]
        assert found(store, "T", "x", **window) == expected

    def test_order_does_not_depend_on_modification_times(self, g1_store: Path, tmp_path: Path) -> None:  # PR#129
        root = tmp_path / "touched"
        shutil.copytree(g1_store, root)
        for path in sorted(root.rglob("*"), reverse=True):
            path.touch()
        touched = MessageStore.open(root).query(Question("TopicTest", "hotkey")).records
        assert touched == MessageStore.open(g1_store).query(Question("TopicTest", "hotkey")).records


def smallest_hash() -> tuple[str, str]:
    """A topic and a key whose joined string hashes to the smallest int: its last characters are digits, base 31."""
    topic, prefix, digits = "T", "k", 7
    fixed = oracles.java_hash(f"{topic}#{prefix}") * 31**digits + sum(64 * 31**power for power in range(digits))
    rest = (2**31 - fixed) % 2**32
    characters = [chr(64 + rest // 31**power % 31) for power in range(digits - 1, -1, -1)]
    return topic, prefix + "".join(characters)


class TestDamagedIndex:
    """ "Hash collisions, …, cyclic or wild pointers, header counts that lie: none may hide or invent a message." """

    @settings(max_examples=examples(12), suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.data())
    def test_damage_to_slots_pointers_hashes_and_header_hides_nothing(
        self, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        root = tmp_path_factory.mktemp("damaged")
        writer = StoreWriter(root, index_slots=7, index_entries=12)
        for number in range(30):
            writer.append("T", keys=f"k{number % 5}", unique_key=f"u{number}", tags="t")
        writer.close()
        path = data.draw(st.sampled_from(writer.index_paths()))
        size = path.stat().st_size
        entries = 40 + 4 * 7 + 20
        place = data.draw(
            st.one_of(
                st.integers(32, 39),  # counts of the header
                st.integers(40, 40 + 4 * 7 - 1),  # slots
                st.integers(0, 20 * 11 - 1).filter(lambda n: n % 20 < 4 or n % 20 >= 16).map(lambda n: entries + n),
            )
        )
        write_file(path, size, {place: data.draw(st.binary(min_size=1, max_size=4))})
        store = MessageStore.open(root)
        records = writer.records
        for key, kind in [(f"k{n}", KeyKind.KEY) for n in range(5)] + [("t", KeyKind.TAG), ("u7", KeyKind.UNIQUE)]:
            assert found(store, "T", key, kind) == oracles.query(records, "T", key, kind=KINDS[kind])

    @pytest.mark.parametrize("size", [0, 39, 40, 41, 48, 1000])
    def test_a_truncated_index_file_hides_nothing(self, tmp_path: Path, size: int) -> None:  # rmq#9441
        writer = StoreWriter(tmp_path)
        written = [writer.append("T", keys="x") for _ in range(40)]
        writer.close()
        with writer.index_paths()[0].open("r+b") as file:
            file.truncate(size)
        store = MessageStore.open(tmp_path)
        assert found(store, "T", "x") == [message.physical_offset for message in written]

    def test_an_index_of_another_log_covers_nothing(self, tmp_path: Path) -> None:  # rmq#8041
        mine, other = tmp_path / "mine", tmp_path / "other"
        for root, prefix in ((mine, "mine"), (other, "longer-prefix")):
            writer = StoreWriter(root)
            for number in range(60):
                writer.append("T", keys=f"{prefix}{number}")
            writer.close()
        shutil.rmtree(mine / "index")
        shutil.copytree(other / "index", mine / "index")
        store = MessageStore.open(mine)
        assert all(len(found(store, "T", f"mine{number}")) == 1 for number in range(60))
        assert any("do not belong to this log" in problem for problem in store.problems)

    @pytest.mark.parametrize("kept", [0, 1, 2])
    def test_lost_index_files_hide_nothing(self, tmp_path: Path, kept: int) -> None:  # rmq#8007, #3868
        writer = StoreWriter(tmp_path, index_entries=20)
        for number in range(60):
            writer.append("T", keys=f"k{number}", tags="t")
        writer.close()
        paths = writer.index_paths()
        for number, path in enumerate(paths):
            if number % 3 != kept:
                path.unlink()
        store = MessageStore.open(tmp_path)
        records = writer.records
        for number in range(60):
            assert found(store, "T", f"k{number}") == oracles.query(records, "T", f"k{number}", kind="K")
        assert found(store, "T", "t", KeyKind.TAG) == oracles.query(records, "T", "t", kind="T")
