"""Records that are only copied: what the kernel makes of them is what `resent` makes of their messages."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rocketlens
from kernel_memory import Bytes
from message_encoding import encode_message
from protocol.checksum import body_crc
from protocol.host_address import HostAddress
from protocol.message import decode_message
from protocol.properties import UNIQ_KEY, property_value
from protocol.sending import packed
from protocol.system_properties import SYSTEM_PROPERTIES
from replayed_stores import write_every_kind
from rocketlens.replay.choice import Chosen, PlainPiece, SourceChoice, place_of
from rocketlens.replay.plan import row_of
from rocketlens.replay.resent import ORIGIN, NotResent, ResendManner, RetriedGoal, plain_rules, resent
from storage.kernels.resending import ResendRules, resend_parcels, resend_rows

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
    data, rules = Bytes(record), plain_rules(manner)
    assert rules is not None
    places = np.array([0], np.int64)
    (row,) = resend_rows(data.region, places, len(record), 1000, rules)
    (parcel,) = resend_parcels(data.region, places, len(record), 1000, rules)
    assert (row is None) == (parcel is None)
    message = decode_message(record)
    if row is None or parcel is None:
        # What is plain is not declined.
        block, key = bytes(message.properties_bytes), message.unique_key
        is_odd = message.sys_flag & 0xC0 or message.topic != "Orders" or manner.topic.startswith("%")
        is_odd = (
            is_odd
            or ":" in message.store_host.ip + message.born_host.ip
            or block.decode(errors="replace").encode() != block
        )
        is_odd = is_odd or key is None or not key.isascii() or message.store_host in manner.own_hosts
        kept = [piece.partition(b"\x01")[0] for piece in block.split(b"\x02")]
        assert is_odd or len(set(kept)) < len(kept) or ORIGIN.encode() in kept
        return
    noted = row_of(Chosen(message, place_of(message)), manner)
    place, key, topic, origin, stored_at, size, crc = row
    assert (place, key, key, topic, origin, stored_at, size, crc, False, True, 0, "") == tuple(noted)
    outgoing = resent(message, manner)
    assert parcel == (
        place_of(message),
        property_value(outgoing.properties, UNIQ_KEY),
        outgoing.topic,
        body_crc(outgoing.body),
        str(message.store_host),
        message.queue_id,
        outgoing.sys_flag,
        packed(outgoing),
    )


@given(record=records(), size=st.integers(0, 300), noise=st.binary(min_size=1, max_size=4), at=st.integers(0, 200))
def test_hostile_bytes_are_declined_or_taken_whole(record: bytes, size: int, noise: bytes, at: int) -> None:
    damaged = (record[:at] + noise + record[at + len(noise) :])[: max(size, 1)]
    data, rules = Bytes(damaged), plain_rules(ResendManner())
    assert rules is not None
    for resend in (resend_rows, resend_parcels):
        assert len(resend(data.region, np.array([0, len(damaged)], np.int64), len(damaged), 1000, rules)) == 2
    with pytest.raises(ValueError, match="do not lie in a region"):
        resend_rows(data.region, np.array([len(damaged) + 1], np.int64), len(damaged), 1000, rules)


def test_properties_that_are_too_long_with_those_added_are_not_sent() -> None:
    for length, is_plain in ((32_620, True), (32_750, False)):
        record = encode_message(
            topic="Orders", properties={"UNIQ_KEY": "A", "long": "x" * length}, physical_offset=1000
        )
        rules = plain_rules(ResendManner())
        assert rules is not None
        for resend in (resend_rows, resend_parcels):
            (made,) = resend(Bytes(record).region, np.array([0], np.int64), len(record), 1000, rules)
            assert (made is not None) is is_plain
        if not is_plain:
            with pytest.raises(NotResent, match="are allowed"):
                resent(decode_message(record), ResendManner())


def test_names_that_are_too_long_are_refused() -> None:
    with pytest.raises(ValueError, match="too long"):
        ResendRules(left_behind=[b"x" * 65], origin=b"o", cluster=b"", kept_flags=0, own_hosts=[], target_of=str)


def test_records_are_chosen_as_a_search_finds_their_messages(tmp_path: Path) -> None:
    write_every_kind(tmp_path / "store")
    with rocketlens.open(tmp_path / "store") as store:
        for topics in (["Plain"], ["Batched"], ["Sixth"], []):
            choice = SourceChoice(store, topics)
            expected = list(store.search(topic=topics[0] if topics else None))
            rows, plain = [], 0
            for piece in choice.pieces():
                assert isinstance(piece, PlainPiece)
                for row in piece.rows(plain_rules(ResendManner())):
                    plain += not isinstance(row, Chosen)
                    rows.append(row.place if isinstance(row, Chosen) else row[0])
            assert rows == [place_of(message) for message in expected]
            assert bool(plain) == (topics not in (["Batched"], ["Sixth"]))
