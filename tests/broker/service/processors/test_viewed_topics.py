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


def kind_of(topic: str) -> str:
    """The topic without the name of a group."""
    return topic[: topic.index("%", 1) + 1] if topic.startswith(("%RETRY%", "%DLQ%")) else topic
