"""Walking over what a broker appends: up to the last intact record, with one record of each queue noted."""

import itertools
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from examples import examples
from kernel_memory import Bytes, record_at, segment_at
from storage.kernels.records import (
    AT_DAMAGE,
    AT_LIMIT,
    AT_NOTHING,
    BAD_BODY_CRC,
    BAD_SIZE,
    MAXIMUM_QUEUES,
    QUEUES_FULL,
    has_sane_texts,
    walk_appended,
)

BASE = 1 << 32
BLANK = (100).to_bytes(4, "big") + (0xCBD43194).to_bytes(4, "big") + bytes(92)


class Walked:
    """What a walk over some bytes, which nothing readable follows, found."""

    def __init__(self, data: bytes, position: int = 0, limit: int | None = None, boundary: int | None = None) -> None:
        held = Bytes(data)
        stop = len(data) if limit is None else limit
        boundary = BASE + len(data) if boundary is None else boundary
        walk = walk_appended(held.region, position, stop, len(data), BASE, boundary)
        self.end, self.reason, self.records, self.code = walk.position, walk.reason, walk.records, walk.code
        self.last_two, self.noted = (walk.before_last, walk.last), walk.queues


segment = partial(segment_at, BASE)


changes = st.fixed_dictionaries(
    {
        "topic_bytes": st.sampled_from([b"T", b"TT", b"U", "Grüße".encode(), b"%RETRY%G", bytes(range(1, 100))]),
        "queue_id": st.sampled_from([0, 1, 2, 0x10000, 0x7FFFFFFF]),
        "sys_flag": st.sampled_from([0, 4, 0x10, 0x30]),
        "body": st.binary(max_size=10),
    }
)


class TestWalkAppended:
    @settings(max_examples=examples(20))
    @given(st.lists(changes, max_size=12), st.sampled_from([b"", bytes(8), bytes(100)]))
    def test_every_record_is_stepped_over_and_the_first_of_each_queue_noted(
        self, plan: list[dict[str, object]], behind: bytes
    ) -> None:
        data, positions = segment(*plan)
        walked = Walked(data + behind)
        assert (walked.end, walked.reason) == (len(data), AT_NOTHING if behind else AT_LIMIT)
        assert (walked.records, walked.last_two) == (len(positions), (-1, -1, *positions)[-2:])
        first: dict[tuple[object, object], int] = {}
        for change, position in zip(plan, positions, strict=True):
            first.setdefault((change["topic_bytes"], change["queue_id"]), position)
        assert walked.noted == list(first.values())

    @settings(max_examples=examples(20))
    @given(st.lists(changes, min_size=1, max_size=5), st.data())
    def test_a_record_that_is_there_in_part_ends_the_walk(
        self, plan: list[dict[str, object]], data: st.DataObject
    ) -> None:
        whole, _ = segment(*plan)
        cut = data.draw(st.integers(0, len(whole)))
        torn = whole[:cut] + bytes(len(whole) - cut + 50)
        walked = Walked(torn)
        records = list(oracles.scan_segment(torn, BASE))
        assert (walked.end, walked.records) == (sum(record.total_size for record in records), len(records))
        assert walked.reason in (AT_NOTHING, AT_DAMAGE)
        assert (walked.reason == AT_NOTHING) == (not any(torn[walked.end + 8 :]))

    @pytest.mark.parametrize(
        ("planted", "code"), [((0, b"\0\0\0\7"), BAD_SIZE), ((8, b"\x7f\xff\xff\xff"), BAD_BODY_CRC)]
    )
    def test_damage_ends_a_walk_and_is_told_by_its_code(self, planted: tuple[int, bytes], code: int) -> None:
        data, positions = segment({}, {}, {})
        at = positions[1] + planted[0]
        walked = Walked(data[:at] + planted[1] + data[at + 4 :])
        assert (walked.end, walked.reason, walked.code) == (positions[1], AT_DAMAGE, code)

    def test_bytes_too_few_for_anything_are_not_looked_at(self) -> None:
        for left in range(1, 8):
            data, _ = segment({})
            walked = Walked(data + b"\xff" * left)
            assert (walked.end, walked.reason) == (len(data), AT_LIMIT)

    def test_a_walk_ends_when_it_has_met_so_many_queues(self) -> None:
        data, positions = segment(*({"queue_id": number, "body": b""} for number in range(MAXIMUM_QUEUES + 1)))
        walked = Walked(data)
        assert (walked.end, walked.reason) == (positions[-1], QUEUES_FULL)
        assert walked.noted == positions[:-1]


class TestHasSaneTexts:
    def texts(self, topic: bytes, properties: bytes, **changes: object) -> bool:
        held = Bytes(record_at(BASE, topic_bytes=topic, properties_bytes=properties, **changes))
        return has_sane_texts(held.region, 0, held.length)

    @pytest.mark.parametrize("length", [0, 1, 255, 256, 257])
    def test_a_length_that_has_a_zero_byte_is_no_text(self, length: int) -> None:
        assert self.texts(b"T", b"p" * length)

    @pytest.mark.parametrize("sys_flag", [0, 0x10, 0x20, 0x30])
    def test_a_zero_byte_anywhere_in_topic_or_properties_is_seen(self, sys_flag: int) -> None:
        assert self.texts(b"Topic", b"properties", sys_flag=sys_flag, body=bytes(9))
        for at in range(5):
            assert not self.texts(b"Topic"[:at] + b"\0" + b"Topic"[at + 1 :], b"properties", sys_flag=sys_flag)
        for at in range(10):
            assert not self.texts(b"Topic", b"properties"[:at] + b"\0" + b"properties"[at + 1 :], sys_flag=sys_flag)


class TestHalfWrittenHeads:
    """Size and magic number of a record, or of a BLANK, of which the first bytes are there, and nothing behind."""

    @pytest.mark.parametrize("size", [0, 8, 99, 101, -1, 2**31 - 1])
    def test_a_blank_whose_size_is_not_right_yet_is_neither_end_nor_damage(self, size: int) -> None:
        data, _ = segment({})
        head = size.to_bytes(4, "big", signed=True) + BLANK[4:8]
        assert Walked(data + head + bytes(92)).reason == AT_NOTHING
        assert Walked(data + head + bytes(50) + b"x" + bytes(41)).reason == AT_DAMAGE

    @pytest.mark.parametrize(
        "head",
        [b"\0\0\0\x70\xda\xa3\x20\xa8", b"\0\0\0\x70\xa3\0\0\0", b"\0\0\0\x70\0\0\0\xa7", b"\xff\xff\0\0\0\0\0\0"],
    )
    def test_what_is_no_beginning_is_damage(self, head: bytes) -> None:
        data, _ = segment({})
        assert Walked(data + head + bytes(600)).reason == AT_DAMAGE

    def test_queues_that_share_a_java_hash_do_not_slow_a_walk_down(self) -> None:
        topics = [bytes(b"".join(pair)) for pair in itertools.product([b"Aa", b"BB"], repeat=11)]
        data, positions = segment(*({"topic_bytes": topic, "body": b""} for topic in topics))
        assert len(positions) == MAXIMUM_QUEUES
        walk = walk_appended(Bytes(data + bytes(8)).region, 0, len(data), len(data) + 8, BASE, BASE + len(data) + 8)
        assert len(walk.queues) == MAXIMUM_QUEUES
        assert walk.collisions < 20_000, "some thousand in a table that is half full, of two million pairs"
