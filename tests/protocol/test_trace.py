"""Trace bodies, as the official client's encoder writes them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import trace
from protocol.trace import Trace, TraceKind, decode_traces, holds_traces

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
        expected: dict[str, object] = {
            "Pub": {"topic": "Topic-Pub", "success": success == "true", "cost_milliseconds": 17},
            "Recall": {"topic": "Topic-Recall", "success": success == "true"},
            "SubBefore": {"request_id": "request-1", "retry_times": 3},
            "SubAfter": {
                "request_id": "request-1",
                "success": success == "true",
                "cost_milliseconds": 17,
                "outcome": outcome,
            },
            "EndTransaction": {
                "topic": "Topic-EndTransaction",
                "outcome": "COMMIT_MESSAGE" if success == "true" else "ROLLBACK_MESSAGE",
            },
        }[kind]
        assert {name: getattr(trace, name) for name in expected} == expected  # type: ignore[attr-defined]


def test_every_kind_is_among_the_vectors() -> None:
    assert {vector[0] for vector in VECTORS} == {kind.value for kind in TraceKind}


def test_records_of_one_body_are_read_in_their_order() -> None:
    body = b"".join(bytes.fromhex(vector[4]) for vector in VECTORS)
    assert [trace.kind.value for trace in decode_traces(body)] == [vector[0] for vector in VECTORS]


def test_what_older_clients_leave_out_is_absent() -> None:
    body = b"\x01".join([b"SubAfter", b"r", b"ID", b"5", b"false", b"k"]) + b"\x02"
    assert list(decode_traces(body)) == [
        Trace(TraceKind.CONSUMED, "ID", request_id="r", cost_milliseconds=5, success=False)
    ]
    sent = [b"Pub", b"9", b"region", b"group", b"T", b"ID", b"tag", b"k", b"host", b"11", b"4", b"0", b"true"]
    (trace,) = decode_traces(b"\x01".join(sent) + b"\x02")
    assert (trace.success, trace.cost_milliseconds, trace.client_host) == (True, 4, None)


@given(st.lists(st.sampled_from([bytes.fromhex(vector[4]) for vector in VECTORS]), max_size=3), st.binary(max_size=60))
def test_garbage_is_passed_over_and_spoils_nothing_before_it(bodies: list[bytes], garbage: bytes) -> None:
    traces = list(decode_traces(b"".join(bodies) + garbage))
    assert traces[: len(bodies)] == [trace for body in bodies for trace in decode_traces(body)]


@given(
    st.integers(0, 130),
    st.sampled_from([b"", b"\x02", b"\x01", b"x"]),
    st.sampled_from([kind.value.encode() for kind in TraceKind] + [b"pub", b"Subbefore", b""]),
    st.sampled_from([b"\x01", b"\x02", b""]),
)
def test_the_begin_of_a_record_is_seen_wherever_it_lies(ahead: int, end: bytes, kind: bytes, separator: bytes) -> None:
    """In the first piece of a body, in a later one, and in parts of two."""
    body = b"x" * ahead + end + kind + separator + b"1795243506437" + b"y" * 70
    begins = [0, *(place + 1 for place in range(len(body)) if body[place] == 2)]
    starts = tuple(kind.value.encode() + b"\x01" for kind in TraceKind)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace, "_PIECE", 32)
        assert holds_traces(memoryview(body)) == any(body[begin:].startswith(starts) for begin in begins)
