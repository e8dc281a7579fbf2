"""fastjson's JSON, notes of popped messages, keys of offsets and traces, as a broker and clients wrote them."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden_frames import parse_java_json, recorded_frames
from golden_store import CASES, unpack
from protocol import trace
from protocol.errors import ProtocolError
from protocol.fastjson import parse_fastjson
from protocol.offset_keys import is_broadcast_key, split_offset_key
from protocol.pop import Acknowledgement, Pop, PopCheckpoint, decode_acknowledgement, decode_checkpoint
from protocol.trace import Trace, TraceKind, decode_traces, holds_traces

QUEUE_KEY = '{"brokerName":"b","queueId":0,"topic":"T"}'

PARSED = [
    ("{}", {}), ("[]", []), ("null", None),
    (' {"a" : [1, -2.5, "x", true, null]}\n', {"a": [1, -2.5, "x", True, None]}), ("{0:1}", {"0": 1}),
    ("{-1:{2:3},4:[5,6]}", {"-1": {"2": 3}, "4": [5, 6]}),
    ('{\n\t"table":{\n\t\t"T@G":{\n\t\t\t0:2,\n\t\t\t1 : 2\n\t\t}\n\t}\n}', {"table": {"T@G": {"0": 2, "1": 2}}}),
    ('{0:"1:2,{3:4}"}', {"0": "1:2,{3:4}"}), (r'{0:"a\"1:","b\\":1}', {"0": 'a"1:', "b\\": 1}),
    (f"{{{QUEUE_KEY}:{{1:2}}}}", {QUEUE_KEY: {"1": 2}}),
    ('{{"topic":"T","queueId":0,"brokerName":"b"}:1}', {QUEUE_KEY: 1}),
    ('{ {"brokerName": "b", "queueId": 0, "topic": "T"} : 1, 2 : {} }', {QUEUE_KEY: 1, "2": {}}),
    ('{{"topic":"}:{"}:1}', {'{"topic":"}:{"}': 1}), ('{{"标签":"😀"}:1}', {'{"标签":"😀"}': 1}),
    ('{"a":1,"a":2}', {"a": 2}),
    (r'{"\ud800":"\udfff","x":"\ud83d\ude00"}', {"?": "?", "x": "😀"}), (r'{0:"\uDBFF"}', {"0": "?"}), ("\ufeff{}", {}),
    ("12", 12),
]  # fmt: skip

REFUSED = ["", " ", "{", "{0}", "{0:}", "{:1}", "{a:1}", "{'a':1}", '{"a":1,}', "[1:2]", "{1.5:2}", "{{}:1",
           '{{"a":{"b":1}}:1}', '"', '"\\', "NaN", '{"a":Infinity}', '{"a":1}x', "\0"]  # fmt: skip

# Each would take minutes where a pattern goes back, or end in something else than our error.
SLOW = [
    '"' + '\\"' * 50_000, '"\\"' * 50_000, "{" * 50_000, "[" * 50_000, "{0:" * 50_000, '{"a' * 50_000, '{"' * 50_000,
    "{" + " " * 100_000, "{1" + " " * 100_000, "9" * 100_000, "{1 " * 50_000, "{}" * 50_000, "{1:" + "9" * 5_000 + "}",
]  # fmt: skip


def test_a_text_is_parsed_or_refused() -> None:
    # A text is parsed.
    for text, value in PARSED:
        assert parse_fastjson(text) == value
        assert parse_fastjson(text.encode()) == value
    # What is no json is refused.
    for text in REFUSED:
        with pytest.raises(ProtocolError, match="no JSON"):
            parse_fastjson(text)


@pytest.mark.untraced  # at the end of the stack a tracer fails itself
@pytest.mark.parametrize("text", SLOW, ids=[text[:8] for text in SLOW])
def test_hostile_text_is_refused_without_going_back_and_forth(text: str) -> None:
    with pytest.raises(ProtocolError):
        parse_fastjson(text)


def in_quotes(value):
    if isinstance(value, dict):
        return {compact(name): in_quotes(inner) for name, inner in value.items()}
    return [in_quotes(inner) for inner in value] if isinstance(value, list) else value


def compact(name: str) -> str:
    return json.dumps(json.loads(name), separators=(",", ":"), sort_keys=True) if name.startswith("{") else name


def test_every_recorded_json_body_equals_what_another_reader_makes_of_it() -> None:
    bodies = [frame.body for frame in recorded_frames() if frame.body[:1] == b"{"]
    assert len(bodies) > 300
    assert any(b"{{" in body for body in bodies)
    assert any(b"{0:" in body for body in bodies)
    for body in bodies:
        assert parse_fastjson(body) == in_quotes(parse_java_json(body.decode()))


# Bodies of the store A1-A2-B1-pop, written by a broker 5.5.0.
CHECKPOINT = (
    b'{"bm":0,"bn":"broker-a","c":"g1","d":[0,1,2],"it":3000,"n":3,"pt":1795694868695,"q":0,"reviveTime":1795694871695,'
    b'"ro":0,"so":0,"sp":false,"t":"orders"}'
)
ACKNOWLEDGEMENT = b'{"ao":0,"bn":"broker-a","c":"g1","pt":1795694868695,"q":0,"so":0,"t":"orders"}'
POP = Pop("orders", "g1", 0, 0, 1795694868695)


def test_notes_of_popped_messages_are_read() -> None:
    # What a broker wrote is read.
    assert decode_checkpoint(CHECKPOINT) == PopCheckpoint(POP, 1795694871695, (0, 1, 2))
    assert decode_acknowledgement(ACKNOWLEDGEMENT) == Acknowledgement(POP, (0,))
    # Bits say what was acknowledged before the checkpoint was stored.
    found = decode_checkpoint(changed(CHECKPOINT, bm=0b101, so=7, d=[0, 2, 5]))
    assert (found.offsets, found.acknowledged) == ((7, 9, 12), (7, 12))
    # Several are acknowledged at once and old brokers wrote long names.
    found = decode_acknowledgement(changed(ACKNOWLEDGEMENT, ao=-1, aol=[3, 5]))
    assert found == Acknowledgement(POP, (3, 5))
    old = {"ackOffset": 4, "startOffset": 0, "consumerGroup": "g1", "topic": "orders", "queueId": 0}
    assert decode_acknowledgement(json.dumps({**old, "popTime": POP.pop_timestamp}).encode()) == Acknowledgement(
        POP, (4,)
    )


def changed(body: bytes, **values: object) -> bytes:
    return json.dumps({**json.loads(body), **values}).encode()


@given(
    st.binary()
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(lambda each: json.dumps(each).encode())
)
def test_any_bytes_are_a_note_or_none(body: bytes) -> None:
    assert decode_checkpoint(body) is None or decode_acknowledgement(body) is None


def test_a_broker_wrote_both_kinds(tmp_path: Path) -> None:
    store = unpack("store", tmp_path, archives=CASES / "A1-A2-B1-pop")
    table = parse_fastjson((store / "config" / "consumerOffset.json").read_bytes())["offsetTable"]
    assert sorted(filter(None, map(split_offset_key, table))) == [
        ("%RETRY%g1_orders", "g1"),
        ("orders", "g1"),
        ("rmq_sys_REVIVE_LOG_DefaultCluster", "CID_RMQ_SYS_REVIVE_GROUP"),
    ]
    assert [key for key in table if is_broadcast_key(key)] == [
        "DefaultHeartBeatSyncerTopic@CID_DefaultHeartBeatSyncerTopic@broadcast"
    ]


VECTORS = [
    line.split("\t")
    for line in (Path(__file__).parent.parent / "golden" / "trace-vectors.tsv").read_text("utf-8").splitlines()
]


def test_what_the_client_encodes_is_read() -> None:
    for vector in VECTORS:
        kind, success, outcome, keys, data = vector
        (trace,) = decode_traces(bytes.fromhex(data))
        assert trace.kind is TraceKind(kind)
        assert trace.message_id == "7F0000010007"
        assert trace.message_id in keys.split(" ")
        assert (trace.timestamp, trace.group) == (1795243506437, "group-1")
        ended = "COMMIT_MESSAGE" if success == "true" else "ROLLBACK_MESSAGE"
        expected: dict[str, object] = {
            "Pub": {"topic": "Topic-Pub", "success": success == "true", "cost_milliseconds": 17},
            "Recall": {"topic": "Topic-Recall", "success": success == "true"},
            "SubBefore": {"request_id": "request-1", "retry_times": 3},
            "SubAfter": {
                "request_id": "request-1", "success": success == "true", "cost_milliseconds": 17, "outcome": outcome,
            },
            "EndTransaction": {"topic": "Topic-EndTransaction", "outcome": ended},
        }[kind]  # fmt: skip
        assert {name: getattr(trace, name) for name in expected} == expected  # type: ignore[attr-defined]


def test_what_older_clients_leave_out_is_absent() -> None:
    body = b"\x01".join([b"SubAfter", b"r", b"ID", b"5", b"false", b"k"]) + b"\x02"
    assert list(decode_traces(body)) == [
        Trace(TraceKind.CONSUMED, "ID", request_id="r", cost_milliseconds=5, success=False)
    ]
    sent = [b"Pub", b"9", b"region", b"group", b"T", b"ID", b"tag", b"k", b"host", b"11", b"4", b"0", b"true"]
    (trace,) = decode_traces(b"\x01".join(sent) + b"\x02")
    assert (trace.success, trace.cost_milliseconds, trace.client_host) == (True, 4, None)


@given(st.integers(0, 130), st.sampled_from([b"", b"\x02", b"\x01", b"x"]),
       st.sampled_from([kind.value.encode() for kind in TraceKind] + [b"pub", b"Subbefore", b""]),
       st.sampled_from([b"\x01", b"\x02", b""]))  # fmt: skip
def test_the_begin_of_a_record_is_seen_wherever_it_lies(ahead: int, end: bytes, kind: bytes, separator: bytes) -> None:
    """In the first piece of a body, in a later one, and in parts of two."""
    body = b"x" * ahead + end + kind + separator + b"1795243506437" + b"y" * 70
    begins = [0, *(place + 1 for place in range(len(body)) if body[place] == 2)]
    starts = tuple(kind.value.encode() + b"\x01" for kind in TraceKind)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace, "_PIECE", 32)
        assert holds_traces(memoryview(body)) == any(body[begin:].startswith(starts) for begin in begins)
