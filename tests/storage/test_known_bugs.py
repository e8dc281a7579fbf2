"""The peers' known bugs, each as the test that would have caught it; damaged and missing index files among them."""

import shutil
from pathlib import Path

import pytest

import oracles
from protocol.question import KeyKind, Question
from storage.store.message_store import MessageStore
from store_queries import found, open_written
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

    def test_a_key_whose_hash_is_the_smallest_int_is_found(self, tmp_path: Path) -> None:  # E
        topic, key = smallest_hash()
        assert oracles.java_hash(f"{topic}#{key}") == -(2**31)
        writer = StoreWriter(tmp_path)
        writer.append(topic, keys="other")
        wanted = writer.append(topic, keys=key)
        store = open_written(writer, tmp_path)
        assert found(store, topic, key) == [wanted.physical_offset]

    @pytest.mark.parametrize("maximum", [0, -(2**31)])
    def test_no_maximum_gives_nothing(self, g1_store: Path, maximum: int) -> None:  # rmq#7948
        assert MessageStore.open(g1_store).query(Question("TopicTest", "hotkey", maximum=maximum)).count == 0


def smallest_hash() -> tuple[str, str]:
    """A topic and a key whose joined string hashes to the smallest int: its last characters are digits, base 31."""
    topic, prefix, digits = "T", "k", 7
    fixed = oracles.java_hash(f"{topic}#{prefix}") * 31**digits + sum(64 * 31**power for power in range(digits))
    rest = (2**31 - fixed) % 2**32
    characters = [chr(64 + rest // 31**power % 31) for power in range(digits - 1, -1, -1)]
    return topic, prefix + "".join(characters)


class TestDamagedIndex:
    """ "Hash collisions, …, cyclic or wild pointers, header counts that lie: none may hide or invent a message." """

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
