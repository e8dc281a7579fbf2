"""Topics, offsets and queue units, beyond what was recorded (see test_golden_replay)."""

import json
import shutil
from pathlib import Path

import pytest

from asking import Asker
from broker.service.processors.topic_admin import format_bitmap
from heartbeats import consumer, heartbeat, subscription
from oracles import store_times
from protocol.codes import RequestCode
from store_writer import START_TIMESTAMP, StoreWriter


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> Asker:
    """A queue of five messages at 10, 20, 20, 20 and 30 ms."""
    writer = StoreWriter(tmp_path_factory.mktemp("timed") / "store")
    for time in (10, 20, 20, 20, 30):
        writer.append("Timed", b"body", store_timestamp=START_TIMESTAMP + time)
    writer.close()
    return Asker(writer.root)


def offset_at(asker: Asker, time: int, boundary: str | None = None) -> int:
    fields = {"topic": "Timed", "queueId": "0", "timestamp": str(START_TIMESTAMP + time)}
    answer = asker.ask(
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields | ({"boundaryType": boundary} if boundary else {})
    )
    assert answer.code == 0
    assert answer.ext_fields is not None
    return int(answer.ext_fields["offset"])


# ---------------------------------------------------------------------- topics


def test_all_topics_come_in_pages_for_clients_that_ask_for_pages(g1: Asker) -> None:
    version = json.dumps({"timestamp": 1795243732626, "counter": 11, "stateVersion": 0})
    seen: list[str] = []
    while len(seen) < 27:
        fields = {"topicSeq": str(len(seen)), "maxTopicNum": "10", "dataVersion": version if seen else ""}
        answer = g1.ask(RequestCode.GET_ALL_TOPIC_CONFIG, fields)
        assert answer.ext_fields == {"totalTopicNum": "27"}
        page = json.loads(bytes(answer.body))["topicConfigTable"]
        assert 0 < len(page) <= 10
        seen += page
    assert sorted(seen) == sorted(g1.value(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)["topicList"])


@pytest.mark.parametrize("code", [RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET])
@pytest.mark.parametrize("fields", [{"topic": "TopicTest", "queueId": "77"}, {"topic": "No", "queueId": "0"}])
def test_the_offsets_of_an_unknown_queue_are_zero_and_no_error(code: int, fields: dict[str, str], g1: Asker) -> None:
    answer = g1.ask(code, fields)
    assert (answer.code, answer.ext_fields) == (0, {"offset": "0"})


# ---------------------------------------------------------------------- offsets


def test_the_earliest_time_of_a_queue_is_that_of_its_first_message_and_minus_one_without_any(
    g1: Asker, g1_store: Path
) -> None:
    first = store_times(g1_store, "TopicTest", 1)[0]
    assert g1.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, {"topic": "TopicTest", "queueId": "1"}).ext_fields == {
        "timestamp": f"{first}"
    }
    assert g1.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, {"topic": "TopicBatch", "queueId": "0"}).ext_fields == {
        "timestamp": "-1"
    }
    assert g1.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, {"topic": "No", "queueId": "0"}).ext_fields == {
        "timestamp": "-1"
    }


@pytest.mark.parametrize(
    ("time", "lower", "upper"),
    [(5, 0, 0), (10, 0, 0), (15, 1, 0), (20, 1, 3), (25, 4, 3), (30, 4, 4), (35, 5, 4)],
)
def test_a_time_finds_the_first_message_from_it_on_or_the_last_before(
    time: int, lower: int, upper: int, timed: Asker
) -> None:
    assert offset_at(timed, time) == lower
    assert offset_at(timed, time, "LOWER") == lower
    assert offset_at(timed, time, "UPPER") == upper


# ---------------------------------------------------------------------- queue units


@pytest.mark.parametrize(("index", "count"), [("12", "5"), ("-1", "5"), ("99", "5"), ("0", "0"), ("0", "-3")])
def test_units_that_are_not_there_leave_a_list_that_is_empty_and_not_a_body(index: str, count: str, g1: Asker) -> None:
    fields = {"topic": "TopicTest", "queueId": "0", "index": index, "count": count}
    assert g1.ask(RequestCode.QUERY_CONSUME_QUEUE, fields).remark == f"Index {index} of 0@TopicTest is not exist!"
    body = g1.value(RequestCode.QUERY_CONSUME_QUEUE, fields)
    assert (body["queueData"], body["minQueueIndex"], body["maxQueueIndex"]) == ([], 0, 12)


def test_units_with_an_extension_show_it_and_whether_a_live_group_takes_them(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store", ext_bit_map=bytes([0x80, 1]))
    writer.append("Ext", tags="TagA")
    writer.append("Ext", tags="TagB")
    writer.close()
    asker = Asker(writer.root)
    asker.ask(RequestCode.HEART_BEAT, body=heartbeat("client-1", consumer("G", subscription("Ext", "TagA"))))
    body = asker.value(
        RequestCode.QUERY_CONSUME_QUEUE,
        {"topic": "Ext", "queueId": "0", "index": "0", "count": "9", "consumerGroup": "G"},
    )
    assert body["subscriptionData"]["subString"] == "TagA"
    assert [unit["eval"] for unit in body["queueData"]] == [True, False]
    assert [unit["tagsCode"] for unit in body["queueData"]] == [2598919, 2598920]
    assert json.loads(body["queueData"][0]["extendDataJson"])["filterBitMap"] == [-128, 1]
    assert body["queueData"][0]["bitMap"] == "0000000110000000\n"


def test_units_whose_extension_is_lost_say_so(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store", ext_bit_map=b"\1")
    writer.append("Ext", tags="TagA")
    writer.close()
    shutil.rmtree(writer.root / "consumequeue_ext")
    (unit,) = Asker(writer.root).value(RequestCode.QUERY_CONSUME_QUEUE, {"topic": "Ext", "queueId": "0", "count": "1"})[
        "queueData"
    ]
    assert unit["msg"] == f"Cq extend not exist!addr: {-(2**63)}"
    assert unit["tagsCode"] == -(2**63)


def test_a_bitmap_is_printed_from_its_last_bit_with_a_line_for_eight_bytes() -> None:
    assert format_bitmap(bytes([1] + [0] * 8 + [128])) == "1000000000000000\n" + "0" * 63 + "1\n"


def test_the_retry_topic_of_a_group_that_consumes_here_is_listed_as_a_broker_makes_it(g1_store: Path) -> None:
    """When a broker first hears of a group it makes that topic (`ClientManageProcessor.heartBeat`)."""
    asker = Asker(g1_store)
    before = asker.value(RequestCode.GET_ALL_TOPIC_CONFIG)["topicConfigTable"]
    asker.ask(RequestCode.HEART_BEAT, body=heartbeat("client-1", consumer("NewGroup", subscription("TopicTest"))))
    answer = asker.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
    after = json.loads(answer.body)["topicConfigTable"]
    assert set(after) - set(before) == {"%RETRY%NewGroup"}
    assert answer.ext_fields["totalTopicNum"] == str(len(after))
    assert set(asker.value(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)["topicList"]) >= set(after) - set(before)
    fields = {"topicSeq": str(len(before)), "maxTopicNum": "5", "dataVersion": ""}
    fields["dataVersion"] = json.dumps(json.loads(answer.body)["dataVersion"])
    assert set(asker.value(RequestCode.GET_ALL_TOPIC_CONFIG, fields)["topicConfigTable"]) == {"%RETRY%NewGroup"}
