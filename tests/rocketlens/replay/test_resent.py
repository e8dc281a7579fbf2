"""What is sent of a message: what it said of itself stays, what it said of the way it went does not."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from message_encoding import encode_message
from protocol.host_address import HostAddress
from protocol.message import Message, decode_message
from protocol.properties import parse_properties
from protocol.sys_flag import SysFlag
from protocol.system_properties import LEFT_BEHIND, LEFT_BEHIND_BECAUSE, SYSTEM_PROPERTIES
from rocketlens.replay.resent import ORIGIN, NotResent, ResendManner, RetriedGoal, new_id, resent, source_queue

HOST = HostAddress("10.0.0.1", 10911)


def message(topic: str = "Orders", properties: dict[str, str] | None = None, **fields: object) -> Message:
    options = {"body": b"body", "store_host": HOST, "store_timestamp": 2, "born_timestamp": 1} | fields
    properties = {"UNIQ_KEY": "A" * 32} if properties is None else properties
    return decode_message(encode_message(topic=topic, properties=properties, **options))  # type: ignore[arg-type]


def properties_of(sent: Message, manner: ResendManner) -> dict[str, str]:
    return parse_properties(resent(sent, manner).properties)


def test_every_property_of_the_system_stays_or_is_left_behind_for_one_reason() -> None:
    left = [name for names in LEFT_BEHIND_BECAUSE.values() for name in names]
    assert len(left) == len(set(left))
    assert set(left) == {name for name, each in SYSTEM_PROPERTIES.items() if not each.is_resent}


own_names = st.text("abcABC_价", min_size=1, max_size=8).filter(lambda name: name not in SYSTEM_PROPERTIES)
values = st.text(min_size=1, max_size=20).filter(lambda text: not set(text) & set("\x01\x02"))
all_names = st.one_of(own_names, st.sampled_from(sorted(SYSTEM_PROPERTIES)))


@given(
    properties=st.dictionaries(all_names, values.filter(lambda text: text.isprintable()), max_size=8),
    body=st.binary(max_size=40),
    flag=st.integers(-(2**31), 2**31 - 1),
    compressed=st.sampled_from([0, 0x101, 0x201, 0x301]),
    more=st.sampled_from([0, 0x4, 0x8, 0xC]),
)
def test_what_a_message_says_of_itself_stays(
    properties: dict[str, str], body: bytes, flag: int, compressed: int, more: int
) -> None:
    source = message(properties=properties, body=body, flag=flag, sys_flag=compressed | more)
    sent = resent(source, ResendManner(cluster="c"))
    kept = {name: value for name, value in parse_properties(sent.properties).items() if name != ORIGIN}
    expected = {name: value for name, value in properties.items() if name not in LEFT_BEHIND}
    expected.setdefault("UNIQ_KEY", kept["UNIQ_KEY"])
    assert kept == expected
    assert (sent.topic, sent.body, sent.flag, sent.sys_flag) == ("Orders", body, flag, compressed)
    assert parse_properties(sent.properties)[ORIGIN] == f"{source.offset_message_id} 1 2 c"


def test_a_new_id_is_the_same_each_time_and_another_for_each_message() -> None:
    first, second = message(body=b"1"), message(body=b"2", physical_offset=500)
    ids = [properties_of(each, ResendManner(new_ids=True))["UNIQ_KEY"] for each in (first, first, second)]
    assert ids[0] == ids[1] != ids[2]
    assert all(re.fullmatch("[0-9A-F]{32}", each) for each in ids)
    assert ids[0] != first.unique_key


@given(st.integers(-(2**63), 2**63 - 1))
def test_clients_read_a_time_of_a_month_from_a_new_id(store_timestamp: int) -> None:
    read = int(new_id(message(store_timestamp=store_timestamp), "origin")[20:28], 16)  # MessageClientIDSetter
    assert 0 <= read < 28 * 24 * 3600 * 1000


SYSTEM = ["RMQ_SYS_TRACE_TOPIC", "rmq_sys_wheel", "TBW102", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "OFFSET_MOVED_EVENT"]


@pytest.mark.parametrize("topic", SYSTEM)
def test_topics_of_the_broker_are_not_sent(topic: str) -> None:
    for copies in (False, True):
        with pytest.raises(NotResent, match="the broker's own"):
            resent(message(topic), ResendManner(topic="Elsewhere", copies=copies))


@pytest.mark.parametrize("topic", [*SYSTEM, "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"])
def test_nothing_is_sent_to_a_topic_of_the_brokers_own(topic: str) -> None:
    for stored, goal in (("Orders", RetriedGoal.TOPIC), ("%DLQ%G", RetriedGoal.ORIGIN)):
        with pytest.raises(NotResent, match="the broker's own"):
            resent(message(stored, {"DLQ_ORIGIN_TOPIC": topic}), ResendManner(goal, topic))


WAITING = ["SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"]


@pytest.mark.parametrize("topic", WAITING)
def test_what_waits_goes_to_its_real_topic_where_that_is_asked_for(topic: str) -> None:
    waiting = message(topic, {"REAL_TOPIC": "Orders", "REAL_QID": "3", "DELAY": "4", "TRAN_MSG": "true"})
    with pytest.raises(NotResent, match="--copies"):
        resent(waiting, ResendManner())
    assert resent(waiting, ResendManner(copies=True)).topic == "Orders"
    assert set(properties_of(waiting, ResendManner(copies=True))) == {"UNIQ_KEY", ORIGIN}
    with pytest.raises(NotResent, match="not known"):
        resent(message(topic, {"a": "b"}), ResendManner(copies=True))


FAILED = {"RETRY_TOPIC": "Orders", "ORIGIN_MESSAGE_ID": "ID", "UNIQ_KEY": "U", "DLQ_ORIGIN_TOPIC": "Orders"}


@pytest.mark.parametrize(("topic", "times"), [("%RETRY%G", 7), ("%DLQ%G", 0)])
def test_what_a_group_failed_to_consume_has_no_default(topic: str, times: int) -> None:
    failed = message(topic, FAILED, reconsume_times=7)
    with pytest.raises(NotResent, match="there is no default"):
        resent(failed, ResendManner())
    assert resent(failed, ResendManner(RetriedGoal.ORIGIN)).topic == "Orders"
    assert resent(failed, ResendManner(RetriedGoal.TOPIC, "Elsewhere")).topic == "Elsewhere"
    assert set(properties_of(failed, ResendManner(RetriedGoal.ORIGIN))) == {"UNIQ_KEY", ORIGIN}
    retried = resent(failed, ResendManner(RetriedGoal.RETRY))
    # A dead letter that kept its count would be given up again at once.
    assert (retried.topic, retried.reconsume_times) == ("%RETRY%G", times)
    said = parse_properties(retried.properties)
    assert (said["RETRY_TOPIC"], said["ORIGIN_MESSAGE_ID"]) == ("Orders", "ID")


def test_a_batch_that_cannot_be_taken_apart_is_not_sent() -> None:
    batch = message(sys_flag=int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP))
    with pytest.raises(NotResent, match="a batch that cannot be taken apart"):
        resent(batch, ResendManner())


@pytest.mark.parametrize(
    ("topic", "said", "queue"),
    [
        ("SCHEDULE_TOPIC_XXXX", "2", 2),
        ("RMQ_SYS_TRANS_HALF_TOPIC", "x", 7),
        ("rmq_sys_wheel_timer", None, 7),
        ("T", "2", 7),
    ],
)
def test_what_waits_goes_to_the_queue_that_it_was_sent_to(topic: str, said: str | None, queue: int) -> None:
    properties = {"REAL_TOPIC": "Orders"} | ({} if said is None else {"REAL_QID": said})
    assert source_queue(message(topic, properties, queue_id=7)) == queue


@pytest.mark.parametrize(
    ("there", "topic"),
    [
        ((), "%RETRY%g"),
        (("%RETRY%g+Orders", "%RETRY%other"), "%RETRY%g+Orders"),
        (("%RETRY%g_Orders", "%RETRY%g+Other"), "%RETRY%g_Orders"),
        (("%RETRY%g", "%RETRY%g+Orders"), "%RETRY%g"),
    ],
)
def test_a_group_that_only_pops_gets_its_dead_letters_by_the_retry_topic_of_their_topic(
    there: tuple[str, ...], topic: str
) -> None:
    dead = message("%DLQ%g", {"UNIQ_KEY": "A", "DLQ_ORIGIN_TOPIC": "Orders", "RETRY_TOPIC": "Orders"})
    sent = resent(dead, ResendManner(RetriedGoal.RETRY, retry_topics=frozenset(there)))
    assert (sent.topic, parse_properties(sent.properties)["RETRY_TOPIC"]) == (topic, "Orders")
