"""Pulls beyond the recorded ones, and VIEW_MESSAGE_BY_ID and QUERY_MESSAGE on g1 beside what its producers had."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asking import Asker
from broker.endpoint import Endpoint
from broker.service.processors import pull_message, query_message
from draining import pull_of
from examples import examples
from golden_frames import Session
from golden_store import GOLDEN, produced, unpack
from heartbeats import consumer, heartbeat, subscription
from oracles import java_hash
from protocol.codes import RequestCode, ResponseCode
from protocol.message import decode_message, decode_messages
from store_writer import StoreWriter, appended, closed_store

COMMIT, SUSPEND, SUBSCRIPTION = 1, 2, 4
FOUND, NOT_FOUND, RETRY, MOVED = 0, 19, 20, 21
NOTHING_CHOSEN: dict[str, str | int | None] = {"subscription": None, "expressionType": None}


def pull(asker, topic, queue_id, queue_offset, code=RequestCode.PULL_MESSAGE, **fields):
    header = pull_of(topic, queue_id, queue_offset, **{"suspendTimeoutMillis": 12500, **NOTHING_CHOSEN, **fields})
    return asker.ask(code, header)


def bounds(answer) -> tuple[int, int, int, int]:
    fields = answer.ext_fields or {}
    return answer.code, *(int(fields[name]) for name in ("nextBeginOffset", "minOffset", "maxOffset"))


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


REFUSED = [
    (
        {"consumerGroup": "Stranger", "sysFlag": 0},
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        "the consumer's group info not exist",
    ),
    ({"topic": "TopicTx", "sysFlag": 0}, ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's subscription not exist"),
    ({"sysFlag": 0, "subVersion": 8}, ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"),
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
]


def test_what_a_broker_refuses_is_refused_in_its_words(g1: Asker) -> None:
    wrong = subscription("TopicBatch", "a >", kind="SQL92")
    g1.ask(RequestCode.HEART_BEAT, body=heartbeat("c1", consumer("G", subscription("TopicTest", "TagD", 7), wrong)))
    for fields, code, words in REFUSED:
        answer = pull(g1, **({"topic": "TopicTest", "queue_id": 0, "queue_offset": 0} | fields))
        assert (answer.code, words in answer.remark) == (code, True), fields


@pytest.mark.parametrize(
    ("changes", "model", "remark", "kind"),
    [
        ({"consumeEnable": False}, "CLUSTERING", "subscription group no permission, CG_TAG", None),
        (
            {"consumeBroadcastEnable": False},
            "BROADCASTING",
            "the consumer group[CG_TAG] can not consume by broadcast way",
            "4",
        ),
        ({"consumeBroadcastEnable": False}, "CLUSTERING", None, None),
        (
            {"forbiddenTable": {"CG_TAG": {"TopicTest": 4}}},
            "CLUSTERING",
            "the consumer group[CG_TAG] is forbidden for topic[TopicTest]",
            "5",
        ),
        ({"forbiddenTable": {"CG_TAG": {"TopicTest": 3}}}, "CLUSTERING", None, None),
        ({"forbiddenTable": {"CG_TAG": {"Other": 4}, "CG_SQL": {"TopicTest": 4}}}, "CLUSTERING", None, None),
    ],
)
def test_a_group_that_may_not_consume_broadcast_or_read_a_topic_is_refused(
    g1_store, tmp_path, changes, model, remark, kind
) -> None:
    """By what the store says; a pull that brings its own subscription is not asked (PullMessageProcessor)."""
    store = shutil.copytree(g1_store, tmp_path / "store")
    path = store / "config" / "subscriptionGroup.json"
    config = json.loads(path.read_text())
    for name, value in changes.items():
        (config if name == "forbiddenTable" else config["subscriptionGroupTable"]["CG_TAG"])[name] = value
    path.write_text(json.dumps(config))
    asker = Asker(store)
    told = consumer("CG_TAG", subscription("TopicTest"), messageModel=model)
    asker.ask(RequestCode.HEART_BEAT, body=heartbeat("c1", told))
    answer = pull(asker, "TopicTest", 0, 0, consumerGroup="CG_TAG", sysFlag=0, subVersion=1)
    if remark is None:
        assert answer.code == FOUND
    else:
        assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, remark)
        assert (answer.ext_fields or {}).get("forbiddenType") == kind
    if "consumeEnable" not in changes:
        assert pull(asker, "TopicTest", 0, 0, consumerGroup="CG_TAG").code == FOUND


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
    queue_id, queue_offset, code, bounds_of_it, sparse
) -> None:
    assert bounds(pull(sparse, "Sparse", queue_id, queue_offset)) == (code, *bounds_of_it)
    polled = pull(sparse, "Sparse", queue_id, queue_offset, sysFlag=SUBSCRIPTION | SUSPEND)
    assert bounds(polled) == (RETRY if code == MOVED else code, *bounds_of_it)


def test_looking_on_ends_at_some_point_and_the_next_pull_goes_on_there(sparse, monkeypatch) -> None:
    monkeypatch.setattr(pull_message, "SCANS_IN_POOL", 1)
    visited, queue_offset = [], 0
    while queue_offset < 2500:
        code, following, _, _ = bounds(pull(sparse, "Sparse", 0, queue_offset, subscription="Never"))
        assert code == RETRY
        assert following > queue_offset
        visited.append(following)
        queue_offset = following
    assert visited == [800, 1600, 2400, 2500], "16,000 bytes of units of 20 bytes a scan"


def test_a_message_longer_than_a_frame_is_passed_over_saying_so(tmp_path: Path) -> None:
    messages = appended("Long", bytes(70_000)), appended("Long", b"short")
    writer = closed_store(tmp_path / "store", *messages, segment_size=1 << 18)
    asker = Asker(writer.root, frame_limit=65_536)
    answer = pull(asker, "Long", 0, 0)
    assert bounds(answer) == (RETRY, 1, 0, 2)
    assert "more than fit" in answer.remark
    assert [message.queue_offset for message in decode_messages(pull(asker, "Long", 0, 1).body)] == [1]


def test_an_offset_that_comes_with_a_pull_is_remembered_where_it_is_meant(g1: Asker) -> None:
    g1.ask(RequestCode.HEART_BEAT, body=heartbeat("c1", consumer("G", subscription("TopicTest", "*", 1))))
    for flag, offset, kept in ((0, 4, None), (COMMIT, 0, None), (COMMIT, -1, None), (COMMIT, 4, 4)):
        pull(g1, "TopicTest", 1, 5, sysFlag=flag, commitOffset=offset, subVersion=1)
        assert g1.service.offsets.committed("G", "TopicTest", 1) == kept


TAGS = (None, "A", "B", "Aa", "BB", "标签", "f5a5a608")
"""Aa and BB have one hash, f5a5a608 that of no tag."""


@dataclass(frozen=True)
class Choice:
    """A subscription, and by hand what it chooses of a message's tag and number."""

    text: str
    kind: str
    chooses: Callable[[str | None, int], bool]


def by_tags(tags: tuple[str, ...]) -> Choice:
    hashes = {java_hash(tag) for tag in tags}
    return Choice(" || ".join(tags), "TAG", lambda tag, _number: java_hash(tag or "") in hashes)


def by_number(lowest: int, remainder: int) -> Choice:
    text = f"number >= {lowest} AND rest = '{remainder}'"
    return Choice(text, "SQL92", lambda _tag, number: number >= lowest and number % 7 == remainder)


CHOICES = st.one_of(
    st.just(Choice("*", "TAG", lambda _tag, _number: True)),
    st.lists(st.sampled_from(["A", "Aa", "标签", "f5a5a608", "none"]), min_size=1, max_size=3).map(
        lambda tags: by_tags(tuple(tags))
    ),
    st.builds(by_number, st.integers(0, 60), st.integers(0, 7)),
)


def write(root, messages, first_offset) -> dict[int, list[tuple[int, str | None]]]:
    """A store of the messages; each queue's numbers and tags by queue offset, from `first_offset` on in queue 1."""
    writer = StoreWriter(root, segment_size=1 << 14, queue_file_size=400)
    queues: dict[int, list[tuple[int, str | None]]] = {0: [], 1: []}
    for number, (queue_id, tag) in enumerate(messages):
        offset = len(queues[queue_id]) + (first_offset if queue_id else 0)
        properties = {"number": str(number), "rest": str(number % 7)}
        writer.append("T", b"%d" % number, tags=tag, queue_id=queue_id, queue_offset=offset, properties=properties)
        queues[queue_id].append((number, tag))
    writer.close()
    return queues


def pulled(asker: Asker, choice: Choice, queue_id: int, offset: int, maximum: int, flags: int) -> list[int]:
    found: list[int] = []
    how = {"subscription": choice.text, "expressionType": choice.kind, "sysFlag": flags | SUBSCRIPTION}
    for _ in range(300):
        answer = asker.ask(RequestCode.PULL_MESSAGE, pull_of("T", queue_id, offset, maxMsgNums=maximum, **how))
        following = int(answer.ext_fields["nextBeginOffset"])
        if answer.code == NOT_FOUND:
            return found
        assert answer.code in (FOUND, RETRY, MOVED)
        assert following != offset, "nobody gets on"
        found += [int(bytes(message.body)) for message in decode_messages(answer.body)]
        offset = following
    raise AssertionError("no end")


@settings(max_examples=examples(10))
@given(
    messages=st.lists(st.tuples(st.integers(0, 1), st.sampled_from(TAGS)), min_size=2, max_size=70),
    first_offset=st.sampled_from([0, 1, 19, 20, 333]),
    asked=st.tuples(st.integers(0, 1), st.integers(-3, 420), st.integers(1, 40), st.sampled_from([0, SUSPEND])),
    choice=CHOICES,
)
def test_a_pull_until_the_end_brings_what_a_scan_of_everything_chooses(messages, first_offset, asked, choice) -> None:
    messages = [(0, None), (1, None), *messages]  # both queues are there
    queue_id, begin, _, _ = asked
    with TemporaryDirectory() as folder:
        queue = write(Path(folder) / "store", messages, first_offset)[queue_id]
        places = enumerate(queue, first_offset if queue_id else 0)
        expected = [number for at, (number, tag) in places if at >= begin and choice.chooses(tag, number)]
        assert pulled(Asker(Path(folder) / "store"), choice, *asked) == expected


VIEW, QUERY = 33, 12
FOREVER = "9223372036854775807"


PRODUCED = produced()
assert len(PRODUCED) > 10
FIRST = PRODUCED[0]


@pytest.fixture(scope="module")
def asker(g1_store) -> Asker:
    return Asker(g1_store)


def query(asker, topic="TopicTest", key="hotkey", **fields):
    wanted = {"topic": topic, "key": key, "maxNum": "64", "beginTimestamp": "0", "endTimestamp": FOREVER} | fields
    return asker.ask(QUERY, {name: value for name, value in wanted.items() if value != "(absent)"})


def messages(response):
    assert response.code == ResponseCode.SUCCESS, response.remark
    return list(decode_messages(response.body))


def unique_keys(response) -> set[str | None]:
    return {message.unique_key for message in messages(response)}


def stored_bytes(root, physical_offset, size) -> bytes:
    segment, position = divmod(physical_offset, 131072)
    with (root / "commitlog" / f"{segment * 131072:020}").open("rb") as file:
        file.seek(position)
        return file.read(size)


def test_a_view_answers_the_record_byte_for_byte_and_each_key_unique_key_and_tag_finds_it(asker, g1_store) -> None:
    for one in PRODUCED:
        response = asker.ask(VIEW, {"offset": str(one.physical_offset)})
        assert (response.code, response.remark, response.ext_fields) == (0, None, None)
        assert bytes(response.body) == stored_bytes(g1_store, one.physical_offset, len(response.body))
        message = decode_message(response.body, physical_offset=one.physical_offset)
        assert message.offset_message_id == one.offset_message_id
        found = messages(query(asker, one.topic, one.unique_key, _UNIQUE_KEY_QUERY="true", indexType="U"))
        assert [message.unique_key for message in found] == [one.unique_key] * len(found) != []
        for key in one.keys:
            assert one.unique_key in unique_keys(query(asker, one.topic, key, indexType="K"))
            assert one.unique_key in unique_keys(query(asker, one.topic, key))
        if one.tags:
            # The newest 64 of a tag that more messages carry need not hold this one.
            page = messages(query(asker, one.topic, one.tags, indexType="T"))
            assert {message.tags for message in page} == {one.tags}


def test_a_unique_key_is_found_where_the_index_type_does_not_forbid_it_and_the_flag_wins(asker: Asker) -> None:
    for index_type, flag in product(("(absent)", "", "U", "X", "K", "T"), ("(absent)", "false", "true", "TRUE")):
        response = query(asker, FIRST.topic, FIRST.unique_key, indexType=index_type, _UNIQUE_KEY_QUERY=flag)
        if index_type in ("K", "T") and flag.lower() != "true":
            assert response.code == ResponseCode.QUERY_NOT_FOUND
        else:
            assert unique_keys(response) == {FIRST.unique_key}


@pytest.mark.parametrize("form", ["{0}", "1795240800000@TopicTest@K@hotkey@ID@{0}", "a@@{0}"])
@pytest.mark.parametrize("maximum", ["1", "7", "39"])
def test_all_matches_can_be_paged(asker: Asker, form: str, maximum: str) -> None:
    everything = messages(query(asker))
    pages = []
    fields: dict[str, str] = {}
    while True:
        response = query(asker, maxNum=maximum, **fields)
        pages = messages(response) + pages
        cursor = (response.ext_fields or {}).get("rocketlensCursor")
        if cursor is None:
            break
        fields = {"lastKey": form.format(cursor)}
    assert pages == everything


def test_a_record_longer_than_any_frame_is_said_to_be(g1_store, monkeypatch) -> None:
    monkeypatch.setattr(query_message, "HEADER_RESERVE", 65536 - 10)
    tiny = Asker(g1_store, frame_limit=65536)
    response = query(tiny)
    assert (response.code, response.remark) == (ResponseCode.SYSTEM_ERROR, "the newest match is longer than 10 bytes")
    response = tiny.ask(VIEW, {"offset": "0"})
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert "has 275 bytes, one answer at most 10" in response.remark
    assert query(tiny, key=FIRST.offset_message_id, _UNIQUE_KEY_QUERY="true").code != ResponseCode.SUCCESS


def test_a_unique_query_for_an_offset_id_is_answered_so_that_java_takes_it(asker: Asker) -> None:
    for one, topic in product(PRODUCED, (None, "TopicTest", "AnyTopic")):
        asked = {"_UNIQUE_KEY_QUERY": "true", "indexType": "U", "maxNum": "32"}
        (message,) = messages(query(asker, topic or one.topic, one.offset_message_id, **asked))
        # What MessageExt.getMsgId() gives for this record.
        assert (message.unique_key, message.message_id) == (None, one.offset_message_id)
        original = decode_message(asker.ask(VIEW, {"offset": str(one.physical_offset)}).body)
        assert bytes(message.body) == bytes(original.body)
        assert message.properties == {name: text for name, text in original.properties.items() if name != "UNIQ_KEY"}


def test_a_topic_is_looked_up_inside_its_clients_namespace_too(tmp_path) -> None:
    writer = closed_store(tmp_path / "store", appended("space%Orders", b"body", keys="k"))
    asker = Asker(writer.root)
    inside = {"nsd": "true", "ns": "space"}, {"nsd": "TRUE", "ns": "space"}
    others = {"nsd": "false", "ns": "space"}, {"ns": "space"}, {"nsd": "true"}, {"nsd": "true", "ns": "other"}
    for fields, is_found in (*((each, True) for each in inside), *((each, False) for each in others)):
        assert (query(asker, "Orders", "k", **fields).code == ResponseCode.SUCCESS) is is_found, fields
        viewed = asker.ask(VIEW, {"offset": "0", "topic": "Orders", **fields})
        assert viewed.code == (0 if is_found else NO_PERMISSION), fields


def test_records_may_go_out_with_our_own_address(g1_store) -> None:
    own = Endpoint("10.1.2.3", 10911)
    ours = Asker(g1_store, rewrite_store_host=True, advertise=own)
    plain = Asker(g1_store)
    viewed = decode_message(ours.ask(VIEW, {"offset": "0"}).body)
    assert str(viewed.store_host) == str(own)
    assert viewed.unique_key == decode_message(plain.ask(VIEW, {"offset": "0"}).body).unique_key
    found = messages(query(ours))
    assert {str(message.store_host) for message in found} == {str(own)}
    assert [each.physical_offset for each in found] == [each.physical_offset for each in messages(query(plain))]
    # The ids that clients now print lead to us, and the old ones still resolve.
    for message_id in (found[0].offset_message_id, PRODUCED[-1].offset_message_id):
        (message,) = messages(query(ours, key=message_id, _UNIQUE_KEY_QUERY="true"))
        assert message.message_id == message_id


FOLDER = GOLDEN / "g2" / "g2-queues-5.5.1"
VIEW, QUERY = 33, 12
RECORDED = Session("g2-queues-5.5.1", FOLDER / "views.jsonl.xz", FOLDER / "store.tar.xz").exchanges()
NO_PERMISSION, REMARK = ResponseCode.NO_PERMISSION, "The topic does not match the message"


def test_views_are_answered_as_recorded_but_for_topics_that_the_record_itself_names(tmp_path) -> None:
    asker = Asker(unpack("store", tmp_path, archives=FOLDER))
    ours_alone = set()
    for exchange in RECORDED:
        answer, expected = asker.ask(VIEW, exchange.ext_fields), exchange.recorded
        if (answer.code, expected.code) == (0, NO_PERMISSION):
            body = asker.ask(VIEW, {"offset": exchange.ext_fields["offset"]}).body
            assert bytes(answer.body) == bytes(body), str(exchange)
            ours_alone.add((kind_of(decode_message(body).topic), kind_of(exchange.ext_fields["topic"])))
        else:
            assert (answer.code, answer.remark) == (expected.code, expected.remark), str(exchange)
            assert bytes(answer.body) == expected.body, str(exchange)
    kinds = {"%RETRY%": {"LightParent", "%LMQ%alpha"}, "%DLQ%": {"LightParent", "%LMQ%alpha", "%RETRY%"}}
    kinds |= {name: {name} for name in ("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer")}
    assert ours_alone == {(topic, named) for topic, names in kinds.items() for named in names}


def kind_of(topic: str) -> str:
    return topic[: topic.index("%", 1) + 1] if topic.startswith(("%RETRY%", "%DLQ%")) else topic
