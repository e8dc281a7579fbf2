"""The records that a scan finds, what it makes of them, and the checksum of every way that this processor can go."""

import gc
import itertools
import mmap
import platform
import weakref
import zlib
from array import array
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from examples import examples
from kernel_memory import Bytes, headers_in_one_another, record_at, segment_at
from oracles import signed
from storage.kernels import records
from storage.kernels.dispatching import DAMAGE, NEED_MORE
from storage.kernels.moving import RecordMover, mend_record
from storage.kernels.region import Region
from store_files import pack_entry

BASE = 1 << 32


segment = partial(segment_at, BASE)


changes = st.fixed_dictionaries({
    "keys": st.sampled_from([None, "a", "a a b", " ", "ключ 🔑"]),
    "unique_key": st.sampled_from([None, "U1", "Aa"]),
    "tags": st.sampled_from([None, "TagA", "标签"]),
    "sys_flag": st.sampled_from([0, 4, 8, 12, 0x30]),
    "body": st.binary(max_size=10),
})  # fmt: skip


OFFSET = 4096


def packed(**changes):
    return record_at(OFFSET, **{"keys": "a b", "unique_key": "U", "tags": "t", **changes})


def shape(data: bytes, offset: int = OFFSET) -> int:
    return records.check_shape(Bytes(data).region, 0, len(data), offset)


def intact(data: bytes, offset: int = OFFSET) -> int:
    return records.check_intact(Bytes(data).region, 0, len(data), offset)


class TestCheck:
    @given(st.data())
    def test_damaged_records_are_judged_like_the_oracle(self, data: st.DataObject) -> None:
        record = bytearray(packed(body=data.draw(st.binary(max_size=20))))
        for _ in range(data.draw(st.integers(0, 3))):
            record[data.draw(st.integers(0, len(record) - 1))] = data.draw(st.integers(0, 255))
        assert (intact(bytes(record)) > 0) == (oracles.read_record(bytes(record), 0, OFFSET) is not None)

    @given(st.binary(min_size=0, max_size=200))
    def test_random_bytes_are_judged_like_the_oracle(self, tail: bytes) -> None:
        data = (0).to_bytes(2, "big") + bytes([0, 120]) + (0xDAA320A7).to_bytes(4, "big") + tail
        assert (shape(data, -1) > 0) == (oracles.read_record(data, 0, check_crc=False) is not None)

    def test_a_property_checksum_is_verified_over_everything_before_it(self) -> None:
        data = packed(property_crc=True)
        assert intact(data) == len(data)
        topic = data.index(b"TopicTest")
        assert intact(data[:topic] + b"X" + data[topic + 1 :]) == records.BAD_PROPERTY_CRC


@given(st.lists(st.sampled_from([b"KEYS", b"TAGS", b"UNIQ_KEY", b"K", b"\x01", b"\x02", b"v", b"a b", b"", b"\0"])))
def test_properties_are_found_by_the_brokers_parsing_rules(pieces: list[bytes]) -> None:
    data = packed(properties_bytes=b"".join(pieces))
    record = oracles.read_record(data, 0, OFFSET)
    assert record is not None
    found = records.entry_hashes(Bytes(data).region, 0, len(data))
    assert set(found) == {oracles.index_hash(text) for text in oracles.index_keys(record)}
    tag = oracles.parse_properties(oracles.decode_java(b"".join(pieces))).get("TAGS")
    expected = None if tag is None else oracles.index_hash(f"TopicTest#T#{tag}")
    assert records.tag_entry_hash(Bytes(data).region, 0, len(data)) == expected


@given(st.binary(max_size=120), st.lists(changes, max_size=3))
def test_a_candidate_is_what_has_magic_and_offset_of_a_record(noise, plan) -> None:
    data, _ = segment_at(BASE + len(noise), *plan)
    assert records.find_candidate(Bytes(noise + data).region, 0, len(noise + data), BASE) == (
        len(noise) if data else -1
    )


def nest(depth, offset, draw):
    """A record, sound or not, whose body has such records within, and filling around them."""
    if depth == 0:
        return draw(st.sampled_from([b"", b"filling", bytes(3000)]))  # type: ignore[no-any-return]
    front = draw(st.sampled_from([b"", b"\xda\xa3", bytes(1500), b"x" * 5000]))
    body = front + nest(depth - 1, offset + 88 + len(front), draw)
    body += nest(depth - 1, offset + 88 + len(body), draw) + draw(st.sampled_from([b"", b"behind" * 500]))
    changes = draw(st.sampled_from([{}, {"crc": 1}, {"keys": "k"}, {"crc": 7, "keys": "k"}]))
    return record_at(offset, body=body, **changes)


@settings(max_examples=examples(12))
@given(st.data())
def test_the_same_is_found_whether_sums_are_kept_or_not(data: st.DataObject) -> None:
    log = nest(data.draw(st.integers(1, 4)), BASE, data.draw) + bytes(100)
    region, end = Region(log), len(log)
    kept, position = records.KeptChecksums(patience=-1), 0
    intact = [at for at in range(end) if records.check_intact(region, at, end, BASE + at) > 0]
    for at in [*intact, end]:
        assert (
            records.find_record(region, position, end, BASE, kept)
            == records.find_record(region, position, end, BASE)
            == at
        )
        walk = records.walk_records(region, position, end, BASE, BASE + end, True, kept)
        assert walk.records == records.walk_records(region, position, end, BASE, BASE + end, True).records
        assert records.find_intact_backwards(region, 0, at, end, BASE) == max((n for n in intact if n < at), default=-1)
        position = at + 1


@pytest.mark.parametrize("magic", [records.MAGIC_V1, records.MAGIC_V2])
def test_headers_in_one_another_are_not_summed_up_again_and_again(magic: int) -> None:
    step, count, size = 100, 20_000, 2_000_200
    log = headers_in_one_another(BASE, step, count, magic)
    sound = record_at(BASE + size)
    region, end = Region(bytes(log) + sound), size + len(sound)
    assert records.check_shape(region, step * (count // 2), end, -1) == size - step * (count // 2)
    sums = records.KeptChecksums()
    for position in range(step * (count - 1), -1, -step * 7):  # as entries may lead there, in any order
        assert records.check_intact(region, position, end, BASE + position, sums) == records.BAD_BODY_CRC
    assert records.check_intact(region, size, end, BASE + size, sums) == len(sound)
    assert sums.summed < 2 * records.SUM_PATIENCE + 2 * count * records.SUM_STEP + 3 * size
    sums = records.KeptChecksums()
    assert records.find_record(region, 0, end, BASE, sums) == size
    assert records.walk_records(region, 0, end, BASE, BASE + end, True, sums).code == records.BAD_BODY_CRC
    assert records.find_record(region, 1, end, BASE, sums) == size
    # Half of the step of each of the two ends of each body, twice; one by one it would be some 40 GB.
    assert sums.summed < 2 * records.SUM_PATIENCE + 2 * count * records.SUM_STEP + 3 * size


@given(
    st.lists(
        st.tuples(st.integers(0, 2**31 - 1) | st.integers(0, 9), st.integers(0, 2**63 - 1) | st.integers(0, 9)),
        min_size=1,
    ),
    st.booleans(),
)
def test_entries_are_sorted_by_hash_and_then_by_offset(entries: list[tuple[int, int]], is_scanned: bool) -> None:
    asked = sorted(entries, key=lambda entry: entry[1]) if is_scanned else entries
    hashes, offsets = array("i", [hashed for hashed, _ in asked]), array("q", [offset for _, offset in asked])
    span = records.sort_entries(hashes, offsets)
    assert list(zip(hashes, offsets, strict=True)) == sorted(entries)
    assert (span.first, span.last) == (min(offsets), max(offsets))


BLANK = (100).to_bytes(4, "big") + (0xCBD43194).to_bytes(4, "big") + bytes(92)


class Walked:
    """What a walk over some bytes, which nothing readable follows, found."""

    def __init__(self, data: bytes, position: int = 0, limit: int | None = None, boundary: int | None = None) -> None:
        held = Bytes(data)
        stop = len(data) if limit is None else limit
        boundary = BASE + len(data) if boundary is None else boundary
        walk = records.walk_appended(held.region, position, stop, len(data), BASE, boundary)
        self.end, self.reason, self.records, self.code = walk.position, walk.reason, walk.records, walk.code
        self.last_two, self.noted = (walk.before_last, walk.last), walk.queues


appended_changes = st.fixed_dictionaries({
    "topic_bytes": st.sampled_from([b"T", b"TT", b"U", "Grüße".encode(), b"%RETRY%G", bytes(range(1, 100))]),
    "queue_id": st.sampled_from([0, 1, 2, 0x10000, 0x7FFFFFFF]),
    "sys_flag": st.sampled_from([0, 4, 0x10, 0x30]),
    "body": st.binary(max_size=10),
})  # fmt: skip


@settings(max_examples=examples(20))
@given(st.lists(appended_changes, max_size=12), st.sampled_from([b"", bytes(8), bytes(100)]))
def test_every_record_is_stepped_over_and_the_first_of_each_queue_noted(plan, behind) -> None:
    data, positions = segment(*plan)
    walked = Walked(data + behind)
    assert (walked.end, walked.reason) == (len(data), records.AT_NOTHING if behind else records.AT_LIMIT)
    assert (walked.records, walked.last_two) == (len(positions), (-1, -1, *positions)[-2:])
    first: dict[tuple[object, object], int] = {}
    for change, position in zip(plan, positions, strict=True):
        first.setdefault((change["topic_bytes"], change["queue_id"]), position)
    assert walked.noted == list(first.values())


@settings(max_examples=examples(20))
@given(st.lists(appended_changes, min_size=1, max_size=5), st.data())
def test_a_record_that_is_there_in_part_ends_the_walk(plan, data) -> None:
    whole, _ = segment(*plan)
    cut = data.draw(st.integers(0, len(whole)))
    torn = whole[:cut] + bytes(len(whole) - cut + 50)
    walked = Walked(torn)
    whole = list(oracles.scan_segment(torn, BASE))
    assert (walked.end, walked.records) == (sum(record.total_size for record in whole), len(whole))
    assert walked.reason in (records.AT_NOTHING, records.AT_DAMAGE)
    assert (walked.reason == records.AT_NOTHING) == (not any(torn[walked.end + 8 :]))


class TestHalfWrittenHeads:
    """Size and magic number of a record, or of a BLANK, of which the first bytes are there, and nothing behind."""

    @pytest.mark.parametrize("size", [0, 8, 99, 101, -1, 2**31 - 1])
    def test_a_blank_whose_size_is_not_right_yet_is_neither_end_nor_damage(self, size: int) -> None:
        data, _ = segment({})
        head = size.to_bytes(4, "big", signed=True) + BLANK[4:8]
        assert Walked(data + head + bytes(92)).reason == records.AT_NOTHING
        assert Walked(data + head + bytes(50) + b"x" + bytes(41)).reason == records.AT_DAMAGE

    @pytest.mark.parametrize(
        "head",
        [b"\0\0\0\x70\xda\xa3\x20\xa8", b"\0\0\0\x70\xa3\0\0\0", b"\0\0\0\x70\0\0\0\xa7", b"\xff\xff\0\0\0\0\0\0"],
    )
    def test_what_is_no_beginning_is_damage(self, head: bytes) -> None:
        data, _ = segment({})
        assert Walked(data + head + bytes(600)).reason == records.AT_DAMAGE

    def test_queues_that_share_a_java_hash_do_not_slow_a_walk_down(self) -> None:
        topics = [bytes(b"".join(pair)) for pair in itertools.product([b"Aa", b"BB"], repeat=11)]
        data, positions = segment(*({"topic_bytes": topic, "body": b""} for topic in topics))
        assert len(positions) == records.MAXIMUM_QUEUES
        walk = records.walk_appended(
            Bytes(data + bytes(8)).region, 0, len(data), len(data) + 8, BASE, BASE + len(data) + 8
        )
        assert len(walk.queues) == records.MAXIMUM_QUEUES
        assert walk.collisions < 20_000, "some thousand in a table that is half full, of two million pairs"


@pytest.mark.parametrize("crc", [False, True])
def test_a_record_is_mended_with_its_checksum(crc: bool) -> None:
    record = bytearray(record_at(BASE, prepared_transaction_offset=7, property_crc=crc))
    mend_record(record, 0, len(record), 99)
    assert bytes(record) == record_at(BASE, prepared_transaction_offset=99, property_crc=crc)
    assert signed(bytes(record), 28, 8) == BASE


def test_a_buffer_is_held_until_the_region_goes() -> None:
    memory = mmap.mmap(-1, mmap.PAGESIZE)
    region = Region(memory)
    with pytest.raises(BufferError):
        memory.close()
    array = np.zeros(10, np.uint8)
    alive, other = weakref.ref(array), Region(array)
    del array
    gc.collect()
    assert alive() is not None
    del other, region
    gc.collect()
    assert alive() is None
    memory.close()


def scan(data, position=0, stop=None, room=1000):
    held = Bytes(data)
    hashes, offsets = (np.zeros(room + records.MAXIMUM_PIECES, kind) for kind in (np.int32, np.int64))
    limit, boundary = len(data) if stop is None else stop, BASE + len(data)
    found = records.scan_keys(held.region, position, limit, len(data), BASE, boundary, hashes, offsets)
    pairs = zip(hashes[: found.entries].tolist(), offsets[: found.entries].tolist(), strict=True)
    return found.position, found.reason, set(pairs)


SIZE = 1 << 16


def test_a_record_that_is_cut_off_or_damaged_ends_a_run() -> None:
    record = record_at(BASE + 48)
    entry = pack_entry(record, BASE, index=0)
    for data, reason in ((entry[:-1], NEED_MORE), (entry[:20], NEED_MORE), (entry[:-30] + bytes(30), DAMAGE)):
        mover = RecordMover(bytearray(SIZE), SIZE, BASE, SIZE)
        step = mover.run(Bytes(data).region, 0, len(data), BASE, BASE + SIZE, SIZE)
        assert (step.reason, mover.used, mover.records) == (reason, 0, 0)
    wrong = record_at(BASE + 48, crc=1)
    data = pack_entry(wrong, BASE, index=0)
    mover = RecordMover(bytearray(SIZE), SIZE, BASE, SIZE)
    assert mover.run(Bytes(data).region, 0, len(data), BASE, BASE + SIZE, SIZE).reason == DAMAGE


def test_entries_that_do_not_belong_together_are_refused_and_what_is_cut_or_no_record_told() -> None:
    # Entries that do not belong together are refused.
    for hashes, offsets in ((array("i", [1]), array("q", [1, 2])), (array("i"), array("q"))):
        with pytest.raises(ValueError, match=f"{len(hashes)} hashes of {len(offsets)} offsets"):
            records.sort_entries(hashes, offsets)
    # A cut record has a bad size.
    assert shape(packed()[:-1]) == records.BAD_SIZE
    assert shape(b"") == records.BAD_SIZE
    # Digits that are none are no checksum.
    data = bytearray(packed(property_crc=True))
    topic = data.index(b"TopicTest")
    data[topic], data[-5] = ord("X"), ord("x")
    assert intact(bytes(data)) == len(data)
    # What is no record has no texts and no entries.
    # It may have been one when it was looked at before.
    region = Region(bytes(200))
    assert [ask(region, 0, 200) for ask in (records.has_sane_texts, records.tag_entry_hash, records.entry_hashes)] == [
        False, None, None,
    ]  # fmt: skip


def test_a_scan_ends_when_its_output_is_full_and_checks_what_it_is_asked_to() -> None:
    # A full output ends before the next record.
    data, positions = segment(*({"keys": "a b c"} for _ in range(4)))
    reached, why, pairs = scan(data, room=2)
    assert (reached, why) == (positions[1], records.OUTPUT_FULL)
    assert len(pairs) == 3
    # Checksums are looked at only when asked.
    data, positions = segment({}, {"crc": 1}, {})
    place = Bytes(data).region, 0, len(data), BASE, BASE + len(data)
    assert records.walk_records(*place, False).position == len(data)
    walk = records.walk_records(*place, True)
    assert (walk.position, walk.reason, walk.code) == (positions[1], records.AT_DAMAGE, records.BAD_BODY_CRC)


@pytest.mark.parametrize(
    ("planted", "code"), [((0, b"\0\0\0\7"), records.BAD_SIZE), ((8, b"\x7f\xff\xff\xff"), records.BAD_BODY_CRC)]
)
def test_damage_ends_a_walk_and_is_told_by_its_code(planted: tuple[int, bytes], code: int) -> None:
    data, positions = segment({}, {}, {})
    at = positions[1] + planted[0]
    walked = Walked(data[:at] + planted[1] + data[at + 4 :])
    assert (walked.end, walked.reason, walked.code) == (positions[1], records.AT_DAMAGE, code)


def test_a_walk_ends_at_few_bytes_and_at_many_queues() -> None:
    # Bytes too few for anything are not looked at.
    for left in range(1, 8):
        data, _ = segment({})
        walked = Walked(data + b"\xff" * left)
        assert (walked.end, walked.reason) == (len(data), records.AT_LIMIT)
    # A walk ends when it has met so many queues.
    data, positions = segment(*({"queue_id": number, "body": b""} for number in range(records.MAXIMUM_QUEUES + 1)))
    walked = Walked(data)
    assert (walked.end, walked.reason) == (positions[-1], records.QUEUES_FULL)
    assert walked.noted == positions[:-1]


def has_texts(topic: bytes, properties: bytes, **changes: object) -> bool:
    held = Bytes(record_at(BASE, topic_bytes=topic, properties_bytes=properties, **changes))
    return records.has_sane_texts(held.region, 0, held.length)


@pytest.mark.parametrize("length", [0, 1, 255, 256, 257])
def test_a_length_that_has_a_zero_byte_is_no_text(length: int) -> None:
    assert has_texts(b"T", b"p" * length)


@pytest.mark.parametrize("sys_flag", [0, 0x10, 0x20, 0x30])
def test_a_zero_byte_anywhere_in_topic_or_properties_is_seen(sys_flag: int) -> None:
    assert has_texts(b"Topic", b"properties", sys_flag=sys_flag, body=bytes(9))
    for at in range(5):
        assert not has_texts(b"Topic"[:at] + b"\0" + b"Topic"[at + 1 :], b"properties", sys_flag=sys_flag)
    for at in range(10):
        assert not has_texts(b"Topic", b"properties"[:at] + b"\0" + b"properties"[at + 1 :], sys_flag=sys_flag)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_region_is_the_bytes_of_any_buffer(kind: type) -> None:
    region = Region(kind(b"RocketLens"))
    assert bytes(region) == b"RocketLens"
    assert (len(region), region.size) == (10, 10)


def test_what_is_no_buffer_or_not_in_one_piece_is_refused() -> None:
    with pytest.raises(TypeError):
        Region("text")  # type: ignore[arg-type]
    with pytest.raises((BufferError, ValueError)):
        Region(memoryview(bytes(10))[::2])


ways = pytest.mark.parametrize("way", records.CRC32_PATHS)


@ways
def test_every_short_length_has_the_checksum_zlib_gives_and_nothing_behind_it_is_read(way: str) -> None:
    data = bytes(n * n % 253 for n in range(775))
    for length in range(len(data) + 1):
        held = Bytes(data[:length])
        assert records.crc32(held.region) == records.crc32_by(way, held.region) == zlib.crc32(data[:length])


@ways
@pytest.mark.parametrize("length", [4096, 10_007, 1 << 20])
@pytest.mark.parametrize("shift", [0, 1, 7, 15])
def test_bytes_of_any_alignment_have_the_checksum_zlib_gives(way: str, length: int, shift: int) -> None:
    data = (bytes(range(251)) * ((length + shift) // 251 + 1))[: length + shift]
    assert (
        records.crc32(memoryview(data)[shift:])
        == records.crc32_by(way, memoryview(data)[shift:])
        == zlib.crc32(data[shift:])
    )


def test_the_way_is_the_one_that_the_system_says_the_processor_can_go() -> None:
    with open("/proc/cpuinfo") as file:
        flags = {word for line in file if line.startswith(("flags", "Features")) for word in line.split()}
    needed = {"folding-512": {"vpclmulqdq", "avx512f", "pclmulqdq"}, "folding-256": {"vpclmulqdq", "avx2", "pclmulqdq"},
              "folding": {"pclmulqdq", "ssse3", "sse4_1"}, "instructions": {"crc32"}, "tables": set()}  # fmt: skip
    ways = {"x86_64": ("folding-512", "folding-256", "folding"), "aarch64": ("instructions",)}
    possible = (*ways.get(platform.machine(), ()), "tables")
    assert tuple(way for way in possible if needed[way] <= flags) == records.CRC32_PATHS
    assert records.CRC32_PATHS[0] == records.CRC32_PATH


def test_a_way_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be made by magic"):
        records.crc32_by("magic", b"")
