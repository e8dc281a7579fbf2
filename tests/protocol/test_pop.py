"""Checkpoints and acknowledgements of popped messages: what a broker wrote, and any other bytes."""

import json

from hypothesis import given
from hypothesis import strategies as st

from protocol.pop import Acknowledgement, Pop, PopCheckpoint, decode_acknowledgement, decode_checkpoint

# Bodies of the store A1-A2-B1-pop, written by a broker 5.5.0.
CHECKPOINT = (
    b'{"bm":0,"bn":"broker-a","c":"g1","d":[0,1,2],"it":3000,"n":3,"pt":1795694868695,"q":0,"reviveTime":1795694871695,'
    b'"ro":0,"so":0,"sp":false,"t":"orders"}'
)
ACKNOWLEDGEMENT = b'{"ao":0,"bn":"broker-a","c":"g1","pt":1795694868695,"q":0,"so":0,"t":"orders"}'
POP = Pop("orders", "g1", 0, 0, 1795694868695)


def test_what_a_broker_wrote_is_read() -> None:
    assert decode_checkpoint(CHECKPOINT) == PopCheckpoint(POP, 1795694871695, (0, 1, 2))
    assert decode_acknowledgement(ACKNOWLEDGEMENT) == Acknowledgement(POP, (0,))


def changed(body: bytes, **values: object) -> bytes:
    return json.dumps({**json.loads(body), **values}).encode()


def test_bits_say_what_was_acknowledged_before_the_checkpoint_was_stored() -> None:
    found = decode_checkpoint(changed(CHECKPOINT, bm=0b101, so=7, d=[0, 2, 5]))
    assert found is not None
    assert (found.offsets, found.acknowledged) == ((7, 9, 12), (7, 12))


def test_an_old_checkpoint_has_no_differences_and_no_gaps() -> None:
    found = decode_checkpoint(changed(CHECKPOINT, so=7, d=None))
    assert found is not None
    assert found.offsets == (7, 8, 9)


def test_several_are_acknowledged_at_once_and_old_brokers_wrote_long_names() -> None:
    found = decode_acknowledgement(changed(ACKNOWLEDGEMENT, ao=-1, aol=[3, 5]))
    assert found == Acknowledgement(POP, (3, 5))
    old = {"ackOffset": 4, "startOffset": 0, "consumerGroup": "g1", "topic": "orders", "queueId": 0}
    assert decode_acknowledgement(json.dumps({**old, "popTime": POP.pop_timestamp}).encode()) == Acknowledgement(
        POP, (4,)
    )


def test_what_no_broker_writes_is_no_checkpoint() -> None:
    for values in [
        {"n": 128},
        {"n": -1},
        {"d": [0] * 128},
        {"t": None},
        {"c": 1},
        {"q": True},
        {"so": 1 << 63},
        {"it": 0.5},
    ]:
        assert decode_checkpoint(changed(CHECKPOINT, **values)) is None


@given(
    st.binary()
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(lambda each: json.dumps(each).encode())
)
def test_any_bytes_are_a_note_or_none(body: bytes) -> None:
    assert decode_checkpoint(body) is None or decode_acknowledgement(body) is None
