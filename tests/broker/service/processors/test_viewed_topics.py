"""Views that name a topic: a record is answered to who may know it by that topic, as a broker 5.5.1 answers.

What such a broker answered for one record of each topic is recorded beside the store g2-queues-5.5.1.
"""

from pathlib import Path

import pytest

from asking import Asker
from golden_frames import Exchange, Session
from golden_store import GOLDEN, unpack
from protocol.codes import ResponseCode
from protocol.message import decode_message
from store_writer import StoreWriter

FOLDER = GOLDEN / "g2" / "g2-queues-5.5.1"
VIEW, QUERY = 33, 12
RECORDED = Session("g2-queues-5.5.1", FOLDER / "views.jsonl.xz", FOLDER / "store.tar.xz").exchanges()
NO_PERMISSION, REMARK = ResponseCode.NO_PERMISSION, "The topic does not match the message"


@pytest.fixture(scope="module")
def asker(tmp_path_factory: pytest.TempPathFactory) -> Asker:
    return Asker(unpack("store", tmp_path_factory.mktemp("g2"), archives=FOLDER))


def without_topic(exchange: Exchange) -> dict[str, str]:
    return {"offset": exchange.ext_fields["offset"]}


def test_views_are_answered_as_recorded_but_for_topics_that_the_record_itself_names(asker: Asker) -> None:
    ours_alone = set()
    for exchange in RECORDED:
        answer, expected = asker.ask(VIEW, exchange.ext_fields), exchange.recorded
        assert expected is not None
        if (answer.code, expected.code) == (0, NO_PERMISSION):
            body = asker.ask(VIEW, without_topic(exchange)).body
            assert bytes(answer.body) == bytes(body), str(exchange)
            ours_alone.add((kind_of(decode_message(body).topic), kind_of(exchange.ext_fields["topic"])))
        else:
            assert (answer.code, answer.remark) == (expected.code, expected.remark), str(exchange)
            assert bytes(answer.body) == expected.body, str(exchange)
    assert ours_alone == {
        ("SCHEDULE_TOPIC_XXXX", "SCHEDULE_TOPIC_XXXX"),
        ("rmq_sys_wheel_timer", "rmq_sys_wheel_timer"),
        ("%RETRY%", "LightParent"),
        ("%RETRY%", "%LMQ%alpha"),
        ("%DLQ%", "LightParent"),
        ("%DLQ%", "%LMQ%alpha"),
        ("%DLQ%", "%RETRY%"),
    }


def test_many_views_are_refused_in_the_words_of_the_broker(asker: Asker) -> None:
    refused = [exchange for exchange in RECORDED if asker.ask(VIEW, exchange.ext_fields).code == NO_PERMISSION]
    assert {exchange.ext_fields["topic"] for exchange in refused} > {"NoSuchTopic", "BatchCqTopic", "%LMQ%none"}
    assert len({exchange.ext_fields["offset"] for exchange in refused}) == 13
    answer = asker.ask(VIEW, refused[0].ext_fields)
    assert (answer.remark, answer.body, answer.ext_fields) == (REMARK, b"", None)


def test_where_no_record_starts_the_topic_changes_nothing(asker: Asker) -> None:
    fields = {"offset": "1"}
    assert asker.ask(VIEW, fields | {"topic": "NoSuchTopic"}) == asker.ask(VIEW, fields)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "Orders"}, NO_PERMISSION),
        ({"topic": "Orders", "ns": "space", "nsd": "true"}, 0),
        ({"topic": "Orders", "ns": "space", "nsd": "false"}, NO_PERMISSION),
        ({"topic": "Orders", "ns": "other", "nsd": "true"}, NO_PERMISSION),
        ({"topic": "space%Orders", "ns": "space", "nsd": "true"}, 0),
    ],
)
def test_a_client_that_leaves_wrapping_to_the_server_means_the_topic_in_its_namespace(
    fields: dict[str, str], code: int, tmp_path: Path
) -> None:
    writer = StoreWriter(tmp_path / "store")
    writer.append("space%Orders", b"body")
    writer.close()
    assert Asker(writer.root).ask(VIEW, {"offset": "0"} | fields).code == code


def test_an_offset_id_is_found_whatever_topic_is_named_beside_it(asker: Asker) -> None:
    """Java tools ask so after a refused view: a wrong topic costs them a second question, not the message."""
    record = decode_message(asker.ask(VIEW, {"offset": "0"}).body)
    fields = {"topic": "NoSuchTopic", "key": record.offset_message_id, "maxNum": "32", "_UNIQUE_KEY_QUERY": "true"}
    answer = asker.ask(QUERY, fields | {"beginTimestamp": "0", "endTimestamp": str(2**63 - 1)})
    assert decode_message(answer.body).physical_offset == 0


def kind_of(topic: str) -> str:
    """The topic without the name of a group."""
    return topic[: topic.index("%", 1) + 1] if topic.startswith(("%RETRY%", "%DLQ%")) else topic
