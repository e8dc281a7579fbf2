"""Pulls beyond the recorded ones: subscriptions, refusals, the ends of a queue, scanning ahead, limits, commits."""

import json
import shutil
from pathlib import Path

import pytest

from asking import Asker
from broker.service.processors import pull_message
from draining import pull_of
from heartbeats import consumer, heartbeat, subscription
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Response
from protocol.message import decode_messages
from storage.files.waiting import Unfinished
from store_writer import StoreWriter

COMMIT, SUSPEND, SUBSCRIPTION = 1, 2, 4
FOUND, NOT_FOUND, RETRY, MOVED = 0, 19, 20, 21
NOTHING_CHOSEN: dict[str, str | int | None] = {"subscription": None, "expressionType": None}


def pull(
    asker: Asker,
    topic: str,
    queue_id: int,
    queue_offset: int,
    code: int = RequestCode.PULL_MESSAGE,
    **fields: str | int,
) -> Response:
    header = pull_of(topic, queue_id, queue_offset, **{"suspendTimeoutMillis": 12500, **NOTHING_CHOSEN, **fields})
    return asker.ask(code, header)


def bounds(answer: Response) -> tuple[int, int, int, int]:
    """Code, next, minimum and maximum offset of an answer."""
    fields = answer.ext_fields or {}
    return answer.code, *(int(fields[name]) for name in ("nextBeginOffset", "minOffset", "maxOffset"))


def offsets(answer: Response) -> list[int]:
    return [message.queue_offset for message in decode_messages(answer.body)]


@pytest.fixture(scope="module")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> Asker:
    """Queue 0: 2,500 messages, tag Rare on number 2,321 alone. Queue 1: offsets 100 to 109."""
    writer = StoreWriter(tmp_path_factory.mktemp("sparse") / "store", segment_size=1 << 20, queue_file_size=200_000)
    for number in range(2500):
        writer.append("Sparse", tags="Rare" if number == 2321 else "Common")
    for queue_offset in range(100, 110):
        writer.append("Sparse", queue_id=1, queue_offset=queue_offset)
    writer.close()
    return Asker(writer.root)


# ---------------------------------------------------------------------- subscriptions


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        (
            {"consumerGroup": "Stranger", "sysFlag": 0},
            ResponseCode.SUBSCRIPTION_NOT_EXIST,
            "the consumer's group info not exist",
        ),
        (
            {"topic": "TopicTx", "sysFlag": 0},
            ResponseCode.SUBSCRIPTION_NOT_EXIST,
            "the consumer's subscription not exist",
        ),
        (
            {"sysFlag": 0, "subVersion": 8},
            ResponseCode.SUBSCRIPTION_NOT_LATEST,
            "the consumer's subscription not latest",
        ),
        ({"subscription": "||"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed"),
        ({"subscription": "a >", "expressionType": "SQL92"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED, "a >\n"),
        (
            {"subscription": "", "expressionType": "SQL92"},
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            "the expression is empty",
        ),
        ({"subscription": "a > 1", "expressionType": "sql92"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED, "TAG or SQL92"),
        ({"topic": "TopicBatch", "sysFlag": 0}, ResponseCode.FILTER_DATA_NOT_EXIST, "Your expression may be wrong!"),
        ({"topic": "NoSuchTopic"}, ResponseCode.TOPIC_NOT_EXIST, "topic[NoSuchTopic] not exist"),
        (
            {"queueId": 4},
            ResponseCode.INVALID_PARAMETER,
            "queueId[4] is illegal, topic:[TopicTest] topicConfig.readQueueNums:[4]",
        ),
        ({"queueId": -1}, ResponseCode.INVALID_PARAMETER, "queueId[-1] is illegal"),
    ],
)
def test_what_a_broker_refuses_is_refused_in_its_words(
    fields: dict[str, str | int], code: int, words: str, g1: Asker
) -> None:
    wrong = subscription("TopicBatch", "a >", kind="SQL92")
    g1.ask(RequestCode.HEART_BEAT, body=heartbeat("c1", consumer("G", subscription("TopicTest", "TagD", 7), wrong)))
    answer = pull(g1, **({"topic": "TopicTest", "queue_id": 0, "queue_offset": 0} | fields))
    assert answer.code == code
    assert words in (answer.remark or "")


def test_the_flags_of_topic_and_group_come_with_the_answer(g1_store: Path, tmp_path: Path) -> None:
    store = shutil.copytree(g1_store, tmp_path / "store")
    for name, table, entry, member, flag in (
        ("topics.json", "topicConfigTable", "TopicTest", "topicSysFlag", 2),
        ("subscriptionGroup.json", "subscriptionGroupTable", "CG_TAG", "groupSysFlag", 1),
    ):
        path = store / "config" / name
        config = json.loads(path.read_text())
        config[table][entry][member] = flag
        path.write_text(json.dumps(config))
    fields = pull(Asker(store), "TopicTest", 0, 0, consumerGroup="CG_TAG").ext_fields or {}
    assert (fields["topicSysFlag"], fields["groupSysFlag"]) == ("2", "1")


def change_groups(store: Path, **changes: object) -> None:
    """Change members of CG_TAG's configuration, or of the whole table of groups."""
    path = store / "config" / "subscriptionGroup.json"
    config = json.loads(path.read_text())
    for name, value in changes.items():
        (config if name == "forbiddenTable" else config["subscriptionGroupTable"]["CG_TAG"])[name] = value
    path.write_text(json.dumps(config))


def test_a_group_that_may_not_consume_is_refused(g1_store: Path, tmp_path: Path) -> None:
    store = shutil.copytree(g1_store, tmp_path / "store")
    change_groups(store, consumeEnable=False)
    answer = pull(Asker(store), "TopicTest", 0, 0, consumerGroup="CG_TAG")
    assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "subscription group no permission, CG_TAG")


def test_a_group_that_may_not_broadcast_or_read_a_topic_is_refused(g1_store: Path, tmp_path: Path) -> None:
    """By what the store says; a pull that brings its own subscription is not asked (PullMessageProcessor)."""
    remarks = {
        "4": "the consumer group[CG_TAG] can not consume by broadcast way",
        "5": "the consumer group[CG_TAG] is forbidden for topic[TopicTest]",
    }
    for number, (changes, model, expected) in enumerate((
        ({"consumeBroadcastEnable": False}, "BROADCASTING", "4"),
        ({"consumeBroadcastEnable": False}, "CLUSTERING", None),
        ({}, "BROADCASTING", None),
        ({"forbiddenTable": {"CG_TAG": {"TopicTest": 4}}}, "CLUSTERING", "5"),
        ({"forbiddenTable": {"CG_TAG": {"TopicTest": 3}}}, "CLUSTERING", None),
        ({"forbiddenTable": {"CG_TAG": {"TopicTest": -1}}}, "CLUSTERING", None),
        ({"forbiddenTable": {"CG_TAG": {"Other": 4}, "CG_SQL": {"TopicTest": 4}}}, "CLUSTERING", None),
    )):  # fmt: skip
        store = shutil.copytree(g1_store, tmp_path / str(number))
        change_groups(store, **changes)
        asker = Asker(store)
        told = consumer("CG_TAG", subscription("TopicTest"), messageModel=model)
        asker.ask(RequestCode.HEART_BEAT, body=heartbeat("c1", told))
        answer = pull(asker, "TopicTest", 0, 0, consumerGroup="CG_TAG", sysFlag=0, subVersion=1)
        assert pull(asker, "TopicTest", 0, 0, consumerGroup="CG_TAG").code == FOUND
        if expected is None:
            assert answer.code == FOUND, changes
        else:
            refused = ResponseCode.NO_PERMISSION, remarks[expected], {"forbiddenType": expected}
            assert (answer.code, answer.remark, answer.ext_fields) == refused


# ---------------------------------------------------------------------- the ends of a queue


@pytest.mark.parametrize(
    ("queue_id", "queue_offset", "code", "bounds_of_it"),
    [
        (1, 99, MOVED, (100, 100, 110)),
        (1, 110, NOT_FOUND, (110, 100, 110)),
        (1, 111, MOVED, (110, 100, 110)),
        (2, 0, NOT_FOUND, (0, 0, 0)),
        (2, 5, MOVED, (0, 0, 0)),
    ],
)
def test_offsets_outside_a_queue_are_answered_as_a_broker_does_and_who_polls_is_led_back(
    queue_id: int, queue_offset: int, code: int, bounds_of_it: tuple[int, ...], sparse: Asker
) -> None:
    assert bounds(pull(sparse, "Sparse", queue_id, queue_offset)) == (code, *bounds_of_it)
    polled = pull(sparse, "Sparse", queue_id, queue_offset, sysFlag=SUBSCRIPTION | SUSPEND)
    assert bounds(polled) == (RETRY if code == MOVED else code, *bounds_of_it)


# ---------------------------------------------------------------------- scanning ahead, limits


def test_a_pull_looks_on_until_a_message_passes_its_filter(sparse: Asker) -> None:
    answer = pull(sparse, "Sparse", 0, 0, subscription="Rare")
    assert (answer.code, offsets(answer)) == (FOUND, [2321])
    assert bounds(answer)[1] > 2321


def test_looking_on_for_long_is_left_to_a_thread(sparse: Asker) -> None:
    fields = pull_of("Sparse", subscription="Never")
    step = sparse.step(RequestCode.PULL_MESSAGE, fields)
    assert isinstance(step, Unfinished)
    assert str(step.wait) == "no message of many passes the filter"
    assert step.finish() == pull(sparse, "Sparse", 0, 0, subscription="Never")


def test_looking_on_ends_at_some_point_and_the_next_pull_goes_on_there(
    sparse: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull_message, "SCANS_IN_POOL", 1)
    visited, queue_offset = [], 0
    while queue_offset < 2500:
        code, following, _, _ = bounds(pull(sparse, "Sparse", 0, queue_offset, subscription="Never"))
        assert code == RETRY
        assert following > queue_offset
        visited.append(following)
        queue_offset = following
    assert visited == [800, 1600, 2400, 2500], "16,000 bytes of units of 20 bytes a scan"


@pytest.mark.parametrize(("wanted", "count"), [(1, 1), (5, 5), (32, 32), (1000, 32), (0, 1), (-4, 1)])
def test_a_pull_brings_at_most_what_was_asked_for_and_what_a_broker_gives(
    wanted: int, count: int, sparse: Asker
) -> None:
    answer = pull(sparse, "Sparse", 0, 7, maxMsgNums=wanted)
    assert offsets(answer) == list(range(7, 7 + count))
    assert bounds(answer)[1] == 7 + count


def test_bytes_are_limited_too_but_the_first_message_always_comes(sparse: Asker) -> None:
    size = len(pull(sparse, "Sparse", 0, 0, maxMsgNums=1).body)
    assert len(offsets(pull(sparse, "Sparse", 0, 0, maxMsgBytes=3 * size))) == 3
    assert len(offsets(pull(sparse, "Sparse", 0, 0, maxMsgBytes=1))) == 1


def test_a_message_longer_than_a_frame_is_passed_over_saying_so(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store", segment_size=1 << 18)
    writer.append("Long", bytes(70_000))
    writer.append("Long", b"short")
    writer.close()
    asker = Asker(writer.root, frame_limit=65_536)
    answer = pull(asker, "Long", 0, 0)
    assert bounds(answer) == (RETRY, 1, 0, 2)
    assert "more than fit" in (answer.remark or "")
    assert offsets(pull(asker, "Long", 0, 1)) == [1]


# ---------------------------------------------------------------------- offsets committed on the way


@pytest.mark.parametrize(
    ("flag", "offset", "kept"), [(COMMIT, 4, 4), (0, 4, None), (COMMIT, 0, None), (COMMIT, -1, None)]
)
def test_an_offset_that_comes_with_a_pull_is_remembered_where_it_is_meant(
    flag: int, offset: int, kept: int | None, g1: Asker
) -> None:
    g1.ask(RequestCode.HEART_BEAT, body=heartbeat("c1", consumer("G", subscription("TopicTest", "*", 1))))
    pull(g1, "TopicTest", 1, 5, sysFlag=flag, commitOffset=offset, subVersion=1)
    assert g1.service.offsets.committed("G", "TopicTest", 1) == kept
