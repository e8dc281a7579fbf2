"""A query by key: what is hashed and compared, whose memory is used, what bounds it, and what it says it searched."""

import sys
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oracles
from examples import examples
from protocol.question import KeyKind, Question
from storage.kernels import lookups as kernel
from storage.query.search_report import SearchReport
from storage.store.message_store import MessageStore
from store_writer import START_TIMESTAMP, StoreWriter
from strategies import texts


@given(texts, texts, st.sampled_from(list(KeyKind)))
def test_what_is_hashed_is_what_a_broker_hashes(topic: str, key: str, kind: KeyKind) -> None:
    needle, topic_length, key_start = Question(topic, key, kind).needle()
    infix = "#T#" if kind is KeyKind.TAG else "#"
    assert needle.decode("utf-8", "surrogatepass") == f"{topic}{infix}{key}"
    assert needle[:topic_length].decode("utf-8", "surrogatepass") == topic
    assert needle[key_start:].decode("utf-8", "surrogatepass") == key


def test_threads_that_ask_at_once_get_their_own_answers(tmp_path) -> None:  # rmq#7872
    with StoreWriter(tmp_path) as writer:
        for number in range(60):
            writer.append("T", bytes([number]) * number, keys=f"k{number % 6}")
    store = MessageStore.open(tmp_path)
    expected = {key: store.query(Question("T", key)).records for key in (f"k{n}" for n in range(6))}
    wrong: list[str] = []
    # CPython lets no two threads install a tracer (coverage's) at once: they start one by one, and race afterwards.
    ready, race = threading.Semaphore(0), threading.Event()

    def ask(first: int) -> None:
        ready.release()
        race.wait()
        for number in range(100):
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
    with StoreWriter(root, segment_size=1 << 20, index_entries=5000) as writer:
        for _ in range(kernel.MAXIMUM_HITS + 300):
            writer.append("T", keys="k", unique_key="u")
    return MessageStore.open(root)


@pytest.mark.parametrize("maximum", [kernel.MAXIMUM_HITS, 2**63 - 1])
def test_more_than_an_answer_holds_is_the_newest_that_it_holds(store: MessageStore, maximum: int) -> None:
    answer = store.query(Question("T", "k", maximum=maximum))  # rmq#7948
    log = store.commit_log.segments[0].file.path.parent
    everything = [message.physical_offset for message in oracles.read_log(log)]
    assert list(answer.physical_offsets) == everything[-kernel.MAXIMUM_HITS :]
    assert answer.truncated


@pytest.mark.parametrize("length", [1, kernel.NEEDLE_BYTES - 3, kernel.NEEDLE_BYTES - 2, 10**6])
def test_a_key_of_any_length_has_an_answer(store: MessageStore, length: int) -> None:
    assert store.query(Question("T", "x" * length)).count == 0


KINDS = {KeyKind.ANY: "ANY", KeyKind.KEY: "K", KeyKind.UNIQUE: "U", KeyKind.TAG: "T"}
BROKEN = [b"\xff", b"\xed\xa0\x80", b"\xe4\xbb", b"\xef\xbf\xbd", b"\xc0", b"ok"]
KEYS = ["\ufffd", "\ufffd\ufffd", "a\ufffd", "\ufffdb", "ok"]


def properties(**named: bytes) -> bytes:
    return b"".join(name.encode() + b"\x01" + value + b"\x02" for name, value in named.items())


messages = st.fixed_dictionaries({
    "topic": st.sampled_from(["T", "\ufffdtopic"]),
    "properties": st.builds(
        lambda keys, unique, tags: properties(KEYS=b" ".join(keys), UNIQ_KEY=unique, TAGS=tags),
        st.lists(st.sampled_from([*BROKEN, b"a\xff", b"\xffb"]), min_size=1, max_size=3),
        st.sampled_from(BROKEN),
        st.sampled_from(BROKEN),
    ),
    "store_timestamp": st.integers(1000, 1004),
    "sys_flag": st.sampled_from([0, 0, 12]),
    "body_crc": st.sampled_from([None, None, None, 1]),
})  # fmt: skip


@settings(max_examples=examples(6), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=st.lists(messages, min_size=1, max_size=12), profile=st.sampled_from(["5.5", "5.3"]), data=st.data())
def test_answers_equal_the_oracle_that_scans_everything(plan, profile, data, tmp_path_factory) -> None:
    root = tmp_path_factory.mktemp("broken")
    with StoreWriter(root, index_slots=3, index_entries=8, profile=profile, segment_size=2048) as writer:
        for message in plan:
            writer.append(**message)
        writer.roll()
        writer.append("T", b"so that damage does not end the log")
    records, store = writer.records, MessageStore.open(root)
    for _ in range(8):
        topic, key = data.draw(st.sampled_from(["T", "\ufffdtopic"])), data.draw(st.sampled_from(KEYS))
        kind = data.draw(st.sampled_from(list(KINDS)))
        maximum = data.draw(st.integers(1, 3) | st.just(64))
        begin, end = data.draw(st.sampled_from([(0, 2**63 - 1), (1001, 1003), (1004, 1000)]))
        before = data.draw(st.sampled_from([2**63 - 1, records[-1].physical_offset, 0]))
        answer = store.query(Question(topic, key, kind, maximum, begin, end, before))
        window = {"kind": KINDS[kind], "begin": begin, "end": end, "before_offset": before}
        everything = oracles.query(records, topic, key, maximum=1000, **window)
        assert (list(answer.physical_offsets), answer.truncated) == (everything[-maximum:], len(everything) > maximum)


T0 = "2023-11-14T22:13:20"


def report(**changes: int) -> SearchReport:
    fields = {"files_searched": 3, "entries_walked": 12, "refused": 2, "bad_pointers": 0,
              "index_begin_timestamp": START_TIMESTAMP, "index_end_timestamp": START_TIMESTAMP + 5,
              "index_begin_physical_offset": 0, "index_end_physical_offset": 4000, "log_minimum": 0, "log_end": 5000,
              "log_beyond_index": 0, "unscanned": 0}  # fmt: skip
    return SearchReport(**{**fields, **changes})


def test_it_tells_what_was_searched_and_one_of_a_kind_is_one() -> None:
    # It tells what was searched and what the index covers.
    assert report().sentence() == (
        "searched 3 index files, walked 12 entries, refused 2 hash hits; "
        f"index covers {T0}.000Z to {T0}.005Z, physical offsets 0 to 4000; the log holds 0 to 5000"
    )
    # One of a kind is one.
    text = report(files_searched=1, entries_walked=1, refused=1, bad_pointers=1, log_beyond_index=1).sentence()
    assert text.startswith("searched 1 index file, walked 1 entry, refused 1 hash hit; met 1 bad pointer; ")
    assert text.endswith("; the log holds 0 to 5000, 1 byte of it beyond the index, scanned instead")
