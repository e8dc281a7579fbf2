"""The store's answers against the oracle that scans everything, page by page, on random and recorded stores."""

import itertools
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oracles
from examples import examples
from oracles import END_OF_TIME
from protocol.message import decode_messages
from protocol.question import KeyKind, Question
from storage.store.message_store import MessageStore
from store_queries import KINDS
from strategies import KEYS, TAGS, TOPICS, batch_plans, store_plans


@pytest.mark.untraced
class TestExactAnswers:
    """ "A record is returned only if it is a valid record at that offset …, its topic matches and its key …" """

    @settings(max_examples=examples(4), suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(plan=store_plans(all_indexed=True), data=st.data())
    def test_random_stores_answer_like_the_oracle_that_scans_everything(self, plan, data, tmp_path_factory) -> None:
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
            expected = oracles.query(
                records, topic, key, kind=KINDS[kind], maximum=maximum, begin=begin, end=end, before_offset=before
            )
            assert list(answer.physical_offsets) == expected
            everything = oracles.query(
                records, topic, key, kind=KINDS[kind], maximum=10_000, begin=begin, end=end, before_offset=before
            )
            assert answer.truncated == (maximum > 0 and len(everything) > maximum)
            assert [m.physical_offset for m in decode_messages(answer.records)] == expected


class TestBatches:
    @settings(max_examples=examples(4))
    @given(plan=batch_plans, lost=st.booleans())
    def test_a_batch_is_found_by_what_its_messages_carry(self, plan, lost) -> None:
        """Whether index files cover it or not: brokers index the record alone."""
        with tempfile.TemporaryDirectory() as directory:
            writer = plan.write(Path(directory))
            if lost:
                shutil.rmtree(writer.root / "index", ignore_errors=True)
            store = MessageStore.open(writer.root)
            unique = ("uniq-1", "Aa", "k1", "batch-0", "batch-1")
            texts = {KeyKind.KEY: (*KEYS, "batch-0"), KeyKind.UNIQUE: unique, KeyKind.TAG: ("TagA", "Aa")}
            for kind, topic in itertools.product(texts, ("B", "T")):
                for text in texts[kind]:
                    question = Question(topic, text, kind)
                    answer = store.query(question)
                    found = [
                        each for record in decode_messages(answer.records) for each in question.messages_in(record)
                    ]
                    # A message before the place where a batch breaks off is found with all that there is of it.
                    named = {(each.physical_offset, each.queue_offset) for each in found if not breaks_off(each)}
                    assert named == {
                        (each.physical_offset, each.queue_offset)
                        for record in writer.records
                        for each in oracles.messages_of(record)
                        if each.topic == topic and (has(each, text, kind) or has(record, text, kind))
                        if not breaks_off(each)
                    }


def has(record: oracles.Record, text: str, kind: KeyKind) -> bool:
    return oracles.has_key(record, text, KINDS[kind])


def breaks_off(message):
    """Whether it is a batch that could not be taken apart, of which the first messages can be read in place."""
    return message.sys_flag & 0xC1 == 0xC0
