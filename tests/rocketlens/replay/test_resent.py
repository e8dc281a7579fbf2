"""What is chosen of a source and sent of a message: what it said of itself stays, the way it went does not."""

import json
from functools import partial

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rocketlens
from command_line import rocketlens as command
from kernel_memory import Bytes
from message_encoding import encode_message
from protocol.errors import ConfigError
from protocol.host_address import HostAddress
from protocol.message import decode_message
from protocol.properties import parse_properties
from protocol.sending import packed
from protocol.sys_flag import SysFlag
from protocol.system_properties import LEFT_BEHIND, LEFT_BEHIND_BECAUSE, SYSTEM_PROPERTIES
from replayed_stores import write_every_kind
from rocketlens.replay.account import ReplayAccount, ReplayWays
from rocketlens.replay.choice import Chosen, LinesChoice, PlainPiece, PlainRun, SourceChoice, place_of, runs_of
from rocketlens.replay.plan import row_of
from rocketlens.replay.resent import (
    ORIGIN,
    NotResent,
    ResendManner,
    RetriedGoal,
    cluster_text,
    plain_rules,
    resent,
    source_queue,
)
from storage.kernels.resending import resend_parcels, resend_ways

HOST = HostAddress("10.0.0.1", 10911)


def message(topic="Orders", properties=None, **fields):
    options = {"body": b"body", "store_host": HOST, "store_timestamp": 2, "born_timestamp": 1} | fields
    properties = {"UNIQ_KEY": "A" * 32} if properties is None else properties
    return decode_message(encode_message(topic=topic, properties=properties, **options))


def properties_of(sent, manner) -> dict[str, str]:
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
def test_what_a_message_says_of_itself_stays(properties, body, flag, compressed, more) -> None:
    source = message(properties=properties, body=body, flag=flag, sys_flag=compressed | more)
    sent = resent(source, ResendManner(cluster="c"))
    kept = {name: value for name, value in parse_properties(sent.properties).items() if name != ORIGIN}
    expected = {name: value for name, value in properties.items() if name not in LEFT_BEHIND}
    expected.setdefault("UNIQ_KEY", kept["UNIQ_KEY"])
    assert kept == expected
    assert (sent.topic, sent.body, sent.flag, sent.sys_flag) == ("Orders", body, flag, compressed)
    assert parse_properties(sent.properties)[ORIGIN] == f"{source.offset_message_id} 1 2 c"


SYSTEM = ["RMQ_SYS_TRACE_TOPIC", "rmq_sys_wheel", "TBW102", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "OFFSET_MOVED_EVENT"]


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
def test_a_group_that_only_pops_gets_its_dead_letters_by_the_retry_topic_of_their_topic(there, topic) -> None:
    dead = message("%DLQ%g", {"UNIQ_KEY": "A", "DLQ_ORIGIN_TOPIC": "Orders", "RETRY_TOPIC": "Orders"})
    sent = resent(dead, ResendManner(RetriedGoal.RETRY, retry_topics=frozenset(there)))
    assert (sent.topic, parse_properties(sent.properties)["RETRY_TOPIC"]) == (topic, "Orders")


def chosen(choice) -> list[Chosen]:
    return [each for piece in choice.pieces() for each in piece]


def refusals(lines, tmp_path) -> list[str]:
    file = tmp_path / "lines.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return [each.refusal for each in chosen(LinesChoice(file))]


LINE = {
    "topic": "Orders",
    "queueId": 1,
    "queueOffset": 5,
    "physicalOffset": 700,
    "storeTimestamp": 2,
    "storeHost": "127.0.0.1:10911",
    "bornTimestamp": 1,
    "uniqueKey": "U",
    "keys": ["a", "b"],
    "tags": "T",
    "properties": {"KEYS": "a  b", "TAGS": "T", "UNIQ_KEY": "U", "price": "5"},
    "flag": 3,
    "sysFlag": 0x101,
    "body": "text",
    "bodyEncoding": "text",
    "bodyError": None,
}


@pytest.mark.parametrize("of", ["export", "find"])
def test_what_an_export_wrote_is_sent_as_from_the_store(g1_store, tmp_path, of) -> None:
    file = tmp_path / "out" / "part-00000000000000000000.jsonl"
    if of == "export":
        command("export", g1_store, "--topic", "TopicTest", "--format", "jsonl", "--no-unpack", "--out", file.parent)
    else:
        file.parent.mkdir()
        file.write_bytes(command("search", g1_store, "TopicTest", "--json").output)
    with rocketlens.open(g1_store) as opened:
        expected = chosen(SourceChoice(opened, ["TopicTest"]))
    found = chosen(LinesChoice(file))
    assert [each.place for each in found] == [each.place for each in expected]
    for mine, source in zip(found, expected, strict=True):
        sent, other = resent(mine.message, ResendManner()), resent(source.message, ResendManner())
        assert not mine.refusal
        kept = (sent.body, sent.flag, sorted(sent.properties.split(b"\x02")))
        assert kept == (source.message.body, other.flag, sorted(other.properties.split(b"\x02")))


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        ({}, ""),
        ({"body": "another", "properties": {**LINE["properties"], "price": "6"}}, ""),
        ({"tags": "Other"}, "its tags are another than in its properties"),
        ({"keys": ["c"]}, "its keys are another"),
        ({"uniqueKey": "V"}, "its uniqueKey are another"),
        ({"body": "***"}, "a part of it is masked"),
        ({"storeHost": "***"}, "a part of it is masked"),
        ({"properties": {**LINE["properties"], "price": "***"}}, "a part of it is masked"),
        ({"body": None}, "its body could not be read"),
        ({"body": "AA=", "bodyEncoding": "base64"}, "its body is no base64"),
        ({"bodyEncoding": "hex"}, "its body is no hex"),
        ({"bodyPackings": ["gzip"]}, "export it with --no-unpack"),
        ({"bodyError": "it ends early"}, "it ends early"),
        ({"properties": {**LINE["properties"], "a\x01b": "c"}}, "holds a separator"),
    ],
)
def test_an_edited_line_says_one_thing(tmp_path, edit, reason) -> None:
    (refusal,) = refusals([LINE | edit], tmp_path)
    assert reason in refusal
    assert bool(reason) == bool(refusal)


def test_a_line_that_stands_twice_is_sent_once(tmp_path) -> None:
    assert refusals([LINE, LINE], tmp_path) == ["", "the same message as line 1"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.binary(max_size=60), st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass"))))
def test_what_is_no_message_is_named_with_its_line(tmp_path, line) -> None:
    file = tmp_path / "lines"
    file.write_bytes(json.dumps(LINE).encode() + b"\n" + line.replace(b"\n", b"") + b"\n")
    if not line.strip():
        assert len(chosen(LinesChoice(file))) == 1
        return
    with pytest.raises(ConfigError, match="line 2: no message in JSON"):
        chosen(LinesChoice(file))


names = st.one_of(st.sampled_from([*sorted(SYSTEM_PROPERTIES), ORIGIN]), st.text("abAB_价", min_size=1, max_size=70))
pieces = st.one_of(
    st.tuples(names, st.text("xyz\x01 é价\U0001f600", max_size=20)).map(lambda pair: f"{pair[0]}\x01{pair[1]}\x02"),
    st.text("a\x01\x02", max_size=4),
)
keyed = st.booleans().map(lambda is_keyed: "UNIQ_KEY\x01" + "A" * 32 + "\x02" if is_keyed else "")
hosts = st.sampled_from([HostAddress("10.0.0.1", 10911), HostAddress("10.0.0.2", -5), HostAddress("fe80::1", 10911)])
times = st.integers(-(2**63), 2**63 - 1)


@st.composite
def records(draw: st.DrawFn) -> bytes:
    properties = draw(keyed) + "".join(draw(st.lists(pieces, max_size=9)))
    return encode_message(
        topic=draw(st.sampled_from(["Orders", "%RETRY%g", "%DLQ%g", "SCHEDULE_TOPIC_XXXX", "价"])),
        body=draw(st.binary(max_size=30)),
        properties=properties.encode()
        + draw(st.sampled_from([b"", b"", b"x\x01\xed\xa0\x80", b"y\x01\xc0\x80", b"\xe4\xbb"])),
        queue_id=draw(st.integers(-(2**31), 2**31 - 1)),
        queue_offset=draw(times),
        physical_offset=1000,
        flag=draw(st.integers(-(2**31), 2**31 - 1)),
        sys_flag=draw(st.sampled_from([0, 0x101, 0x301, 0x8, 0xC0])),
        born_timestamp=draw(times),
        born_host=draw(hosts),
        store_timestamp=draw(times),
        store_host=draw(hosts),
    )


@given(
    record=records(),
    manner=st.sampled_from(
        [
            ResendManner(),
            ResendManner(cluster="c", topic="Other"),
            ResendManner(topic="%RETRY%x"),
            ResendManner(goal=RetriedGoal.RETRY, copies=True),
            ResendManner(own_hosts=frozenset({HostAddress("10.0.0.2", -5)})),
        ]
    ),
)
def test_what_the_kernel_makes_is_what_is_sent_of_the_message(record: bytes, manner: ResendManner) -> None:
    data, account = Bytes(record), ReplayAccount(None)
    rules = plain_rules(manner, account.ways)
    assert rules is not None
    place = (data.region, np.array([0], np.int64), len(record), 1000, rules)
    (way,) = resend_ways(*place)
    for with_messages in (False, True):
        (row,), messages, (end,), (flag,) = resend_parcels(*place, with_messages=with_messages)
        assert (row is None) == (way < 0)
        assert end == len(messages)
    message = decode_message(record)
    if row is None:
        assert not messages
        # What is plain is not declined.
        block, key = bytes(message.properties_bytes), message.unique_key
        is_odd = message.sys_flag & 0xC0 or message.topic != "Orders" or manner.topic.startswith("%")
        is_odd = is_odd or ":" in message.store_host.ip + message.born_host.ip
        is_odd = is_odd or block.decode(errors="replace").encode() != block
        is_odd = is_odd or key is None or not key.isascii() or message.store_host in manner.own_hosts
        kept = [piece.partition(b"\x01")[0] for piece in block.split(b"\x02")]
        assert is_odd or len(set(kept)) < len(kept) or ORIGIN.encode() in kept
        return
    outgoing = resent(message, manner)
    assert account.ways[way] == (outgoing.topic, str(message.store_host), message.queue_id)
    assert (messages, flag) == (packed(outgoing), outgoing.sys_flag)
    # What an account makes of the row is what it has of the message when that is looked at.
    account.say(cluster=cluster_text(manner))
    account.plan_plain([row])
    account.plan([row_of(Chosen(message, place_of(message)), manner, account.ways)[0]])
    columns = (
        "place, source_key, unique_key, topic, origin, stored_at, size, body_crc, is_copy, can_batch, state, reason"
    )
    plain, looked_at = account._base.execute(f"SELECT {columns} FROM message ORDER BY number").fetchall()
    assert plain == looked_at
    account.close()


@given(record=records(), size=st.integers(0, 300), noise=st.binary(min_size=1, max_size=4), at=st.integers(0, 200))
def test_hostile_bytes_are_declined_or_taken_whole(record: bytes, size: int, noise: bytes, at: int) -> None:
    damaged = (record[:at] + noise + record[at + len(noise) :])[: max(size, 1)]
    data, rules = Bytes(damaged), plain_rules(ResendManner(), ReplayWays())
    assert rules is not None
    place = (data.region, np.array([0, len(damaged)], np.int64), len(damaged), 1000, rules)
    assert len(resend_ways(*place)) == len(resend_parcels(*place, with_messages=True)[0]) == 2
    for resend in (resend_ways, partial(resend_parcels, with_messages=False)):
        with pytest.raises(ValueError, match="do not lie in a region"):
            resend(data.region, np.array([len(damaged) + 1], np.int64), len(damaged), 1000, rules)


def test_records_are_chosen_as_a_search_finds_their_messages(tmp_path) -> None:
    write_every_kind(tmp_path / "store")
    with rocketlens.open(tmp_path / "store") as store:
        for topics in (["Plain"], ["Batched"], ["Sixth"], []):
            choice = SourceChoice(store, topics)
            expected = list(store.search(topic=topics[0] if topics else None))
            account, plain = ReplayAccount(None), 0
            for piece in choice.pieces():
                assert isinstance(piece, PlainPiece)
                for run in runs_of(piece, plain_rules(ResendManner(), account.ways)):
                    if isinstance(run, PlainRun):
                        account.plan_plain(run.rows())
                        plain += 1
                    else:
                        account.plan([row_of(each, ResendManner(), account.ways)[0] for each in run])
            found = account._base.execute("SELECT place FROM message ORDER BY number").fetchall()
            account.close()
            places = [place for (place,) in found]
            assert sorted(places) == sorted(map(place_of, expected))
            # Those of one queue stay in their order.
            queues = {place_of(message): (message.topic, message.queue_id) for message in expected}
            for queue in set(queues.values()):
                mine = [place_of(message) for message in expected if queues[place_of(message)] == queue]
                assert [place for place in places if queues[place] == queue] == mine
            assert bool(plain) == (topics not in (["Batched"], ["Sixth"]))


def test_a_body_that_was_changed_since_it_was_chosen_is_not_sent() -> None:
    record = encode_message(topic="Orders", body=b"as it was", properties={"UNIQ_KEY": "A"}, physical_offset=1000)
    rules = plain_rules(ResendManner(), ReplayWays())
    assert rules is not None
    for body, is_sent in ((b"as it was", True), (bytes(9), False)):
        data = Bytes(record.replace(b"as it was", body))
        place = (data.region, np.array([0], np.int64), len(record), 1000, rules)
        (row,), messages, *_ = resend_parcels(*place, with_messages=True)
        assert (row is not None, bool(messages)) == (is_sent, is_sent)
