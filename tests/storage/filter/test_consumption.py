"""Who gets a message, and why: of a batch the broker judges the record, and clients compare tags of what is in it."""

from pathlib import Path

import pytest

from golden_store import CASES, unpack
from protocol.errors import ConfigError, FilterSyntaxError
from protocol.message import Message, decode_message
from storage.filter.consumption import SubscriptionCheck
from storage.log.commit_log import CommitLog
from storage.patterns.mask import mask_of
from storage.store.message_store import MessageStore
from store_writer import StoreWriter

BATCH_AT = 3472
"""Where a broker stored a batch without a tag, of three messages with TagC (ids.txt)."""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> CommitLog:
    root = unpack("store", tmp_path_factory.mktemp("batches"), archives=CASES / "B2-B3-batches")
    return MessageStore.open(root).commit_log


def verdicts(record: Message, tag: str | None = None, where: str | None = None) -> list[tuple[bool, str]]:
    judge = SubscriptionCheck(tag, where)
    return [judge.verdict(each) for each in record.inner_messages()]


def batch_of(log: CommitLog) -> Message:
    record = log.record_at(BATCH_AT)
    assert record is not None
    return decode_message(record)


def test_tags_in_a_batch_whose_record_has_none_reach_no_consumer_of_them(log: CommitLog) -> None:
    batch = batch_of(log)
    assert [each.tags for each in batch.inner_messages()] == ["TagC"] * 3
    why = "its batch is not sent, for of the record of it: the message has no tag, wanted: 'TagC'"
    assert verdicts(batch, "TagC") == [(False, why)] * 3
    assert [got for got, _ in verdicts(batch, "*")] == [True] * 3


def test_an_expression_is_judged_by_the_record_of_a_batch(log: CommitLog) -> None:
    batch = batch_of(log)
    assert (
        verdicts(batch, where="TAGS IS NULL")
        == [(True, "of the record of its batch: TAGS IS NULL is true (TAGS is missing)")] * 3
    )
    assert [got for got, _ in verdicts(batch, where="TAGS = 'TagC'")] == [False] * 3


def test_of_a_batch_that_is_sent_clients_keep_what_has_the_tag(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    tags = [{"TAGS": "Aa"}, {"TAGS": "BB"}, {}]
    written = writer.append_inner_batch("T", [(b"x", properties) for properties in tags], tags="BB")
    writer.close()
    record = MessageStore.open(writer.root).commit_log.record_at(written.physical_offset)
    assert record is not None
    assert [got for got, _ in verdicts(decode_message(record), "Aa")] == [True, False, False]  # of one hash with BB


def test_a_subscription_is_one_and_can_be_parsed() -> None:
    for tag, where in ((None, None), ("A", "a = 1")):
        with pytest.raises(ConfigError):
            SubscriptionCheck(tag, where)
    for tag, where in (("||", None), (None, "a >")):
        with pytest.raises(FilterSyntaxError):
            SubscriptionCheck(tag, where)


def test_a_mask_hides_what_it_hides_of_the_record_of_a_batch_too(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    batch = {"INNER_NUM": "1", "INNER_BASE": "0"}
    written = writer.append_inner_batch("T", [(b"x", {})], properties=batch | {"phone": "13912345678", "region": "hz"})
    writer.close()
    record = MessageStore.open(writer.root).commit_log.record_at(written.physical_offset)
    assert record is not None
    (inner,) = decode_message(record).inner_messages()
    for rule in ("properties.phone", "properties:/[0-9]{11}/"):
        shown = mask_of((rule,)).message(inner)
        assert SubscriptionCheck(None, "phone IS NOT NULL").verdict(shown) == (
            True,
            "of the record of its batch: phone IS NOT NULL is true (phone is '***')",
        )
        assert SubscriptionCheck(None, "region = 'hz'").verdict(shown)[0]
