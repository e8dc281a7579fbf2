"""A query in Python terms on its way into the kernel: what is hashed, whose memory is used, what bounds it."""

import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles
from protocol.question import KeyKind, Question
from storage.kernels import lookups as kernel
from storage.store.message_store import MessageStore
from store_writer import StoreWriter
from strategies import texts


class TestNeedle:
    @given(texts, texts, st.sampled_from(list(KeyKind)))
    def test_what_is_hashed_is_what_a_broker_hashes(self, topic: str, key: str, kind: KeyKind) -> None:
        needle, topic_length, key_start = Question(topic, key, kind).needle()
        infix = "#T#" if kind is KeyKind.TAG else "#"
        assert needle.decode("utf-8", "surrogatepass") == f"{topic}{infix}{key}"
        assert needle[:topic_length].decode("utf-8", "surrogatepass") == topic
        assert needle[key_start:].decode("utf-8", "surrogatepass") == key

    def test_kinds_are_the_kernels(self) -> None:
        assert [int(kind) for kind in (KeyKind.ANY, KeyKind.KEY, KeyKind.UNIQUE, KeyKind.TAG)] == [
            kernel.KIND_ANY, kernel.KIND_KEY, kernel.KIND_UNIQUE, kernel.KIND_TAG,
        ]  # fmt: skip


class TestThreads:
    def test_threads_that_ask_at_once_get_their_own_answers(self, tmp_path: Path) -> None:  # rmq#7872
        writer = StoreWriter(tmp_path)
        for number in range(60):
            writer.append("T", bytes([number]) * number, keys=f"k{number % 6}")
        writer.close()
        store = MessageStore.open(tmp_path)
        expected = {key: store.query(Question("T", key)).records for key in (f"k{n}" for n in range(6))}
        wrong: list[str] = []
        # CPython lets no two threads install a tracer (coverage's) at once: they start one by one, and race afterwards.
        ready, race = threading.Semaphore(0), threading.Event()

        def ask(first: int) -> None:
            ready.release()
            race.wait()
            for number in range(300):
                key = f"k{(first + number) % 6}"
                if store.query(Question("T", key)).records != expected[key]:
                    wrong.append(key)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
            ready.acquire()
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            race.set()
            for thread in threads:
                thread.join()
        finally:
            sys.setswitchinterval(interval)
        assert wrong == []


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> MessageStore:
    """More messages under one key than an answer holds."""
    root = tmp_path_factory.mktemp("many")
    writer = StoreWriter(root, segment_size=1 << 20, index_entries=5000)
    for _ in range(kernel.MAXIMUM_HITS + 300):
        writer.append("T", keys="k", unique_key="u")
    writer.close()
    return MessageStore.open(root)


class TestBounds:
    @pytest.mark.parametrize("maximum", [kernel.MAXIMUM_HITS, 2**63 - 1])
    def test_more_than_an_answer_holds_is_the_newest_that_it_holds(self, store: MessageStore, maximum: int) -> None:
        answer = store.query(Question("T", "k", maximum=maximum))  # rmq#7948
        everything = [message.physical_offset for message in store_messages(store)]
        assert list(answer.physical_offsets) == everything[-kernel.MAXIMUM_HITS :]
        assert answer.truncated

    @pytest.mark.parametrize("length", [1, kernel.NEEDLE_BYTES - 3, kernel.NEEDLE_BYTES - 2, 10**6])
    def test_a_key_of_any_length_has_an_answer(self, store: MessageStore, length: int) -> None:
        assert store.query(Question("T", "x" * length)).count == 0

    @pytest.mark.parametrize(("begin", "end"), [(1, 0), (2**63 - 1, -(2**63)), (2**63 - 1, 2**63 - 1), (-(2**63), -1)])
    def test_an_empty_window_holds_nothing_but_unique_keys(self, store: MessageStore, begin: int, end: int) -> None:
        window = {"begin_timestamp": begin, "end_timestamp": end}
        assert store.query(Question("T", "k", KeyKind.KEY, **window)).count == 0
        assert store.query(Question("T", "u", KeyKind.UNIQUE, **window)).count == 64


def store_messages(store: MessageStore) -> list[oracles.Record]:
    return oracles.read_log([segment.file.path.parent for segment in store.commit_log.segments][:1])
