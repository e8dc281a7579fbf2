"""Progress of consumer groups, beyond what was recorded: topics listed, live groups, offsets that make no sense."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from asking import Asker, queue_key
from golden_frames import parse_java_json
from heartbeats import consumer, heartbeat, subscription
from oracles import store_times
from protocol.codes import RequestCode, ResponseCode


def of_group(group: str, *topics: str) -> bytes:
    return heartbeat("client-1", consumer(group, *map(subscription, topics)))


@pytest.fixture
def g1(g1_store: Path) -> Asker:
    return Asker(g1_store)


def committed(store: Path, group: str, topic: str, queue_id: int) -> int:
    """The recorded offset of a group in a queue."""
    table = parse_java_json((store / "config" / "consumerOffset.json").read_text())["offsetTable"]
    return int(table[f"{topic}@{group}"][str(queue_id)])


def topics_in(table: dict[str, Any]) -> set[str]:
    return {json.loads(key)["topic"] for key in table}


def test_a_group_that_never_committed_has_no_progress_and_is_no_error(g1: Asker) -> None:
    assert g1.value(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "Nobody"}) == {
        "consumeTps": 0.0,
        "offsetTable": {},
    }


def test_a_list_of_topics_wins_over_a_single_one_and_over_subscriptions(g1: Asker) -> None:
    g1.ask(RequestCode.HEART_BEAT, body=of_group("CG_SQL", "TopicTest"))
    fields = {"consumerGroup": "CG_SQL", "topic": "TopicTest", "topicList": "TopicBatch;TopicTx;"}
    assert topics_in(g1.value(RequestCode.GET_CONSUME_STATS, fields)["offsetTable"]) == {"TopicBatch", "TopicTx"}


def test_a_live_group_has_progress_only_in_what_it_subscribes_to(g1: Asker) -> None:
    g1.ask(RequestCode.HEART_BEAT, body=of_group("CG_SQL", "TopicBatch"))
    assert g1.value(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "CG_SQL"})["offsetTable"] == {}
    g1.ask(RequestCode.HEART_BEAT, body=of_group("CG_SQL", "TopicTest"))
    assert topics_in(g1.value(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "CG_SQL"})["offsetTable"]) == {
        "TopicTest"
    }


def test_what_a_live_group_commits_is_its_progress_and_nothing_in_flight_is_negative(g1: Asker, g1_store: Path) -> None:
    times = store_times(g1_store, "TopicTest", 1)
    g1.ask(RequestCode.HEART_BEAT, body=of_group("New", "TopicTest"))
    fields = {"consumerGroup": "New", "topic": "TopicTest", "queueId": "1", "commitOffset": "3"}
    assert g1.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == 0
    table = g1.value(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "New"})["offsetTable"]
    assert table[queue_key("TopicTest", 1)] == {
        "brokerOffset": len(times),
        "consumerOffset": 3,
        "lastTimestamp": times[2],
        "pullOffset": 3,
    }
    assert all(wrapper["pullOffset"] >= wrapper["consumerOffset"] for wrapper in table.values())


def test_a_topic_that_is_gone_is_left_out(g1: Asker) -> None:
    assert g1.value(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "CG_TAG", "topic": "Gone"})["offsetTable"] == {}


def test_every_topic_of_a_groups_progress_has_a_route_and_a_configuration(g1: Asker) -> None:
    for group in ("CG_TAG", "CG_SQL", "CG_FAIL", "CID_RMQ_SYS_TRANS"):
        topics = topics_in(g1.value(RequestCode.GET_CONSUME_STATS, {"consumerGroup": group})["offsetTable"])
        assert topics
        for topic in topics:
            assert g1.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).code == 0
            assert g1.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": topic}).code == 0


def test_offsets_of_a_damaged_file_cost_no_row(g1_store: Path, tmp_path: Path) -> None:
    store = shutil.copytree(g1_store, tmp_path / "store")
    table = {"TopicTest@Wild": {"0": -7, "1": 2**62, "2": 3}}
    (store / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    found = Asker(store).value(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "Wild"})["offsetTable"]
    assert found[queue_key("TopicTest", 0)]["consumerOffset"] == 0
    assert found[queue_key("TopicTest", 1)]["lastTimestamp"] == 0
    assert found[queue_key("TopicTest", 2)]["lastTimestamp"] == store_times(g1_store, "TopicTest", 2)[2]


def test_only_ordered_topics_count_where_those_are_asked_for(g1: Asker, g1_store: Path) -> None:
    ordered = g1.value(RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "true"})
    tables = {name: found for group in ordered["consumeStatsList"] for name, found in group.items()}
    groups = parse_java_json((g1_store / "config" / "subscriptionGroup.json").read_text())["subscriptionGroupTable"]
    assert "CG_TAG" in groups
    assert tables == {name: [] for name in groups}
    assert (ordered["totalDiff"], ordered["totalInflightDiff"]) == (0, 0)


def test_how_late_a_group_is_follows_from_the_next_message_it_would_consume(g1: Asker, g1_store: Path) -> None:
    offset, times = committed(g1_store, "CG_TAG", "TopicTest", 0), store_times(g1_store, "TopicTest", 0)
    before = time.time_ns() // 1_000_000
    spans = g1.value(RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": "TopicTest", "group": "CG_TAG"})[
        "consumeTimeSpanSet"
    ]
    after = time.time_ns() // 1_000_000
    (span,) = [span for span in spans if span["messageQueue"]["queueId"] == 0]
    assert 0 < offset < len(times)
    assert (span["minTimeStamp"], span["maxTimeStamp"]) == (times[0], times[-1])
    assert span["consumeTimeStamp"] == times[offset - 1]
    assert before <= span["delayTime"] + times[offset] <= after


def test_a_group_that_has_consumed_everything_is_not_late(g1: Asker, g1_store: Path) -> None:
    spans = g1.value(RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": "TopicTest", "group": "CG_SQL"})[
        "consumeTimeSpanSet"
    ]
    queues = {
        queue_id: (
            committed(g1_store, "CG_SQL", "TopicTest", queue_id),
            len(store_times(g1_store, "TopicTest", queue_id)),
        )
        for queue_id in range(4)
    }
    is_done = {queue_id: offset == end for queue_id, (offset, end) in queues.items()}
    assert set(is_done.values()) == {True, False}
    assert {span["messageQueue"]["queueId"]: span["delayTime"] == 0 for span in spans} == is_done


def test_a_group_that_never_consumed_stands_before_the_first_message(g1: Asker, g1_store: Path) -> None:
    spans = g1.value(RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": "TopicTest", "group": "Nobody"})[
        "consumeTimeSpanSet"
    ]
    assert {span["messageQueue"]["queueId"]: span["consumeTimeStamp"] for span in spans} == {
        queue_id: store_times(g1_store, "TopicTest", queue_id)[0] for queue_id in range(4)
    }


def test_the_times_of_a_queue_without_messages_are_minus_one(g1: Asker) -> None:
    spans = g1.value(RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": "TopicBatch", "group": "CG_FAIL"})[
        "consumeTimeSpanSet"
    ]
    (span,) = [span for span in spans if span["messageQueue"]["queueId"] == 0]
    assert (span["minTimeStamp"], span["maxTimeStamp"], span["delayTime"]) == (-1, -1, 0)


def test_the_times_of_a_topic_that_is_nowhere_are_refused(g1: Asker) -> None:
    answer = g1.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": "No", "group": "G"})
    assert (answer.code, answer.remark) == (ResponseCode.TOPIC_NOT_EXIST, "topic[No] not exist")
