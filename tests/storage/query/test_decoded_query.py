"""Keys that hold U+FFFD: written as bytes that are no UTF-8 as well, and found by what Java decodes them to."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oracles
from examples import examples
from protocol.question import KeyKind, Question
from storage.store import message_store as module
from storage.store.message_store import MessageStore
from store_queries import wait_of
from store_writer import StoreWriter

KINDS = {KeyKind.ANY: "ANY", KeyKind.KEY: "K", KeyKind.UNIQUE: "U", KeyKind.TAG: "T"}
BROKEN = [b"\xff", b"\xed\xa0\x80", b"\xe4\xbb", b"\xef\xbf\xbd", b"\xc0", b"ok"]
KEYS = ["\ufffd", "\ufffd\ufffd", "a\ufffd", "\ufffdb", "ok"]


def properties(**named: bytes) -> bytes:
    return b"".join(name.encode() + b"\x01" + value + b"\x02" for name, value in named.items())


messages = st.fixed_dictionaries(
    {
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
    }
)


@settings(max_examples=examples(12), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=st.lists(messages, min_size=1, max_size=12), profile=st.sampled_from(["5.5", "5.3"]), data=st.data())
def test_answers_equal_the_oracle_that_scans_everything(
    plan: list[dict[str, Any]], profile: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("broken")
    writer = StoreWriter(root, index_slots=3, index_entries=8, profile=profile, segment_size=2048)
    for message in plan:
        writer.append(**message)
    writer.roll()
    writer.append("T", b"so that damage does not end the log")
    writer.close()
    records, store = writer.records, MessageStore.open(root)
    for _ in range(8):
        topic, key = data.draw(st.sampled_from(["T", "\ufffdtopic"])), data.draw(st.sampled_from(KEYS))
        kind = data.draw(st.sampled_from(list(KINDS)))
        maximum = data.draw(st.integers(1, 3) | st.just(64))
        begin, end = data.draw(st.sampled_from([(0, 2**63 - 1), (1001, 1003), (1004, 1000)]))
        before = data.draw(st.sampled_from([2**63 - 1, records[-1].physical_offset, 0]))
        answer = store.query(Question(topic, key, kind, maximum, begin, end, before))
        window: dict[str, Any] = {"kind": KINDS[kind], "begin": begin, "end": end, "before_offset": before}
        everything = oracles.query(records, topic, key, maximum=1000, **window)
        assert list(answer.physical_offsets) == everything[-maximum:]
        assert answer.truncated == (len(everything) > maximum)


def test_decoding_is_left_to_a_thread_that_may_wait(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path)
    writer.append("T", keys="\ufffd")
    writer.close()
    store = MessageStore.open(tmp_path)
    assert str(wait_of(store.query_lookup(Question("T", "\ufffd")))) == "comparing decoded keys"


def test_keys_of_plain_text_are_compared_as_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = StoreWriter(tmp_path)
    written = writer.append("主题", keys="ключ 🔑")
    writer.close()
    monkeypatch.setattr(module, "find_by_decoding", None)
    store = MessageStore.open(tmp_path)
    for key in ("ключ", "🔑"):
        assert store.query(Question("主题", key)).physical_offsets == (written.physical_offset,)
