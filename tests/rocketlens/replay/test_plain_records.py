"""Records that are only copied: what the kernel makes of them is what `resent` makes of their messages."""

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rocketlens
from examples import examples
from kernel_memory import Bytes
from message_encoding import encode_message
from protocol.host_address import HostAddress
from protocol.message import decode_message
from protocol.sending import packed
from protocol.system_properties import SYSTEM_PROPERTIES
from replayed_stores import write_every_kind
from rocketlens.replay.account import ReplayAccount, ReplayWays
from rocketlens.replay.choice import Chosen, PlainPiece, PlainRun, SourceChoice, place_of, runs_of
from rocketlens.replay.plan import row_of
from rocketlens.replay.resent import ORIGIN, NotResent, ResendManner, RetriedGoal, cluster_text, plain_rules, resent
from storage.kernels.resending import ResendRules, resend_parcels, resend_ways
from store_writer import StoreWriter

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
        is_odd = (
            is_odd
            or ":" in message.store_host.ip + message.born_host.ip
            or block.decode(errors="replace").encode() != block
        )
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


def test_properties_that_are_too_long_with_those_added_are_not_sent() -> None:
    for length, is_plain in ((32_620, True), (32_750, False)):
        record = encode_message(
            topic="Orders", properties={"UNIQ_KEY": "A", "long": "x" * length}, physical_offset=1000
        )
        rules = plain_rules(ResendManner(), ReplayWays())
        assert rules is not None
        place = (Bytes(record).region, np.array([0], np.int64), len(record), 1000, rules)
        (way,) = resend_ways(*place)
        (row,), messages, *_ = resend_parcels(*place, with_messages=True)
        assert [way >= 0, row is not None, len(messages) > 0] == [is_plain] * 3
        if not is_plain:
            with pytest.raises(NotResent, match="are allowed"):
                resent(decode_message(record), ResendManner())


def test_names_that_are_too_long_are_refused() -> None:
    with pytest.raises(ValueError, match="too long"):
        ResendRules(left_behind=[b"x" * 65], origin=b"o", cluster=b"", kept_flags=0, way_of=max)


def test_records_are_chosen_as_a_search_finds_their_messages(tmp_path: Path) -> None:
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


@settings(max_examples=examples(12))
@given(odd=st.lists(st.booleans(), min_size=1, max_size=20), queues=st.integers(1, 3))
def test_runs_are_as_few_as_the_order_of_queues_lets_them_be(odd: list[bool], queues: int) -> None:
    """Those of a topic that is never plain part none; those that have no key part the others of their queue."""
    for topic in ("%RETRY%g", "Orders"):
        with TemporaryDirectory() as root:
            writer = StoreWriter(Path(root) / "store")
            for number, is_odd in enumerate(odd):
                of = topic if is_odd else "Orders"
                key = None if is_odd else f"{number:032X}"
                writer.append(of, b"%d" % number, queue_id=number % queues, unique_key=key)
            writer.close()
            with rocketlens.open(Path(root) / "store") as store:
                account = ReplayAccount(None)
                runs = [
                    run
                    for piece in SourceChoice(store).pieces()
                    for run in runs_of(piece, plain_rules(ResendManner(), account.ways))
                ]
                account.close()
                offsets = [
                    run.piece.records.offsets.tolist()
                    if isinstance(run, PlainRun)
                    else [each.message.physical_offset for each in run]
                    for run in runs
                ]
                found = [offset for each in offsets for offset in each]
                expected = [(each.physical_offset, (each.topic, each.queue_id)) for each in store.search()]
            assert sorted(found) == [offset for offset, _ in expected]
            queue_of = dict(expected)
            for queue in queue_of.values():
                mine = [offset for offset in found if queue_of[offset] == queue]
                assert mine == sorted(mine)
            if topic != "Orders":
                assert len(runs) == len(set(odd))
