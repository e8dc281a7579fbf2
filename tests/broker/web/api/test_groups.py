"""Groups and dead letters as the API lists them: what `rocketlens groups` prints, and what mqadmin printed."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acl_file import READER, READER_SECRET, write_accounts
from command_line import rocketlens
from golden_store import GOLDEN, unpack
from heartbeats import consumer, heartbeat
from oracles import read_log
from protocol.bodies import HeartbeatData, decode_json
from storage.store.group_progress import topic_progress
from store_writer import StoreWriter
from web_questions import ApiOf, keys

COLUMNS = ("group", "topic", "lag", "popped")


def listed(answers: list[Any]) -> list[tuple[Any, ...]]:
    return [tuple(line[name] for name in COLUMNS) for answer in answers for line in answer["groups"]]


def printed(root: Path) -> list[tuple[Any, ...]]:
    lines = rocketlens("groups", root, "--json").messages
    return [tuple(line[name] for name in COLUMNS) for line in lines]


@pytest.mark.parametrize("name", ["g1/store", "g2/g2-queues/store", "g2/g2-rocksdb-selective/store"])
def test_the_list_is_what_the_command_prints_of_the_same_store(name: str, tmp_path: Path) -> None:
    root = unpack("store", tmp_path, archives=(GOLDEN / name).parent)
    shown = listed(ApiOf(root).pages("/groups", popped=True, limit=3, milliseconds=10_000))
    expected = printed(root)
    assert len(expected) > 5
    assert [row for row in shown if row[1] is not None] == [row for row in expected if row[1] is not None]
    assert {row[0] for row in shown} == {row[0] for row in expected}


def test_only_those_that_are_behind_are_listed_if_that_is_asked_for(api: ApiOf) -> None:
    everything = listed(api.pages("/groups"))
    behind = listed(api.pages("/groups", behind=True))
    assert behind == [row for row in everything if row[2] != 0]
    assert 0 < len(behind) < len(everything)
    assert {row[1] for row in listed(api.pages("/groups", topic="TopicTest"))} == {"TopicTest"}
    assert {row[0] for row in listed(api.pages("/groups", contains="cg_t"))} == {"CG_TAG"}


def test_a_group_that_consumes_here_is_listed_though_it_committed_nothing(g1_store: Path) -> None:
    api = ApiOf(g1_store)
    assert not listed(api.pages("/groups", contains="CG_HERE"))
    body = decode_json(heartbeat("client", consumer("CG_HERE")), HeartbeatData)
    api.service.clients.heartbeat(_Connection(), body, "JAVA", 0)
    assert listed(api.pages("/groups", contains="CG_HERE")) == [("CG_HERE", None, 0, None)]


class _Connection:
    """A client's connection that stays open."""

    is_open = True


def test_dead_letters_are_counted_by_the_group_that_gave_up(tmp_path: Path) -> None:
    root = unpack("store", tmp_path, archives=GOLDEN / "g2" / "g2-hosts")
    records = [record for record in read_log(root / "commitlog") if record.topic.startswith("%DLQ%")]
    assert records
    (answer,) = ApiOf(root).pages("/dead-letters")
    expected = {
        topic: (
            topic.removeprefix("%DLQ%"),
            sum(record.topic == topic for record in records),
            max(record.store_timestamp for record in records if record.topic == topic),
        )
        for topic in {record.topic for record in records}
    }
    lines = {line["topic"]: (line["group"], line["messages"], line["lastTimestamp"]) for line in answer["groups"]}
    assert {topic: lines[topic] for topic in expected} == expected
    assert answer["total"] == len(lines)


def test_an_account_sees_its_own_groups_and_dead_letters_alone(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    for topic in ("TopicTest", "secret", "%DLQ%readers", "%DLQ%others"):
        writer.append(topic, b"body")
    writer.consumer_offsets = {f"{topic}@{group}": {0: 0} for topic in ("TopicTest", "secret") for group in GROUPS}
    writer.close()
    api = ApiOf(writer.root, write_accounts(tmp_path / "plain_acl.yml"))
    header = keys(READER, READER_SECRET)
    assert listed([api.ask("/groups", headers=header).json]) == [("readers", "TopicTest", 1, None)]
    assert [line["group"] for line in api.ask("/dead-letters", headers=header).json["groups"]] == ["readers"]


GROUPS = ("readers", "others")


def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    writer.append("T", b"body")
    writer.close()
    (writer.root / "config" / "consumerOffset.json").write_text("{")
    answer = ApiOf(writer.root).get("/groups")
    assert answer["groups"] == []
    assert "consumerOffset.json" in answer["groupsProblem"]


@given(
    st.dictionaries(st.integers(0, 5), st.integers(0, 9)),
    st.dictionaries(st.integers(0, 5), st.integers(0, 9)),
    st.none() | st.dictionaries(st.integers(0, 5), st.integers(0, 9)),
)
def test_a_lag_is_the_sum_of_the_queues_unless_one_of_them_is_not_known(
    offsets: dict[int, int], ends: dict[int, int], popped: dict[int, int] | None
) -> None:
    progress = topic_progress("g", "t", offsets, ends, popped)
    is_known = all(queue in ends and ends[queue] >= offset for queue, offset in offsets.items())
    assert progress.lag == (sum(ends[queue] - offset for queue, offset in offsets.items()) if is_known else None)
    expected = None if popped is None or not offsets else sum(popped.get(queue, 0) for queue in offsets)
    assert progress.popped == expected
    assert [each["queueId"] for each in progress.as_map()["queues"]] == sorted(offsets)
