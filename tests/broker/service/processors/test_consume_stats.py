"""Progress of consumer groups, beyond what was recorded: topics listed, live groups, offsets that make no sense."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

from asking import Asker, queue_key
from golden_frames import parse_java_json
from heartbeats import consumer, heartbeat, subscription
from oracles import store_times
from protocol.codes import RequestCode


def of_group(group: str, *topics: str) -> bytes:
    return heartbeat("client-1", consumer(group, *map(subscription, topics)))


def committed(store: Path, group: str, topic: str, queue_id: int) -> int:
    """The recorded offset of a group in a queue."""
    table = parse_java_json((store / "config" / "consumerOffset.json").read_text())["offsetTable"]
    return int(table[f"{topic}@{group}"][str(queue_id)])


def topics_in(table: dict[str, Any]) -> set[str]:
    return {json.loads(key)["topic"] for key in table}


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


def test_offsets_of_a_damaged_file_cost_no_row(g1_store: Path, tmp_path: Path) -> None:
    store = shutil.copytree(g1_store, tmp_path / "store")
    table = {"TopicTest@Wild": {"0": -7, "1": 2**62, "2": 3}}
    (store / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    found = Asker(store).value(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "Wild"})["offsetTable"]
    assert found[queue_key("TopicTest", 0)]["consumerOffset"] == 0
    assert found[queue_key("TopicTest", 1)]["lastTimestamp"] == 0
    assert found[queue_key("TopicTest", 2)]["lastTimestamp"] == store_times(g1_store, "TopicTest", 2)[2]


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
