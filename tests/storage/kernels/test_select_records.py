"""Texts, selected records and rows: each kernel beside Python's own search and dictionaries."""

from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from kernel_memory import Bytes, record_at, segment_at
from storage.columns.rows import ROW
from storage.columns.wanted import Wanted
from storage.kernels import message_rows
from storage.kernels import records as codes
from storage.kernels import texts as text_kernel
from storage.kernels.records import AT_BLANK, AT_DAMAGE, AT_LIMIT, OUTPUT_FULL
from storage.kernels.region import Region
from storage.kernels.select_records import find_needle, select_records
from storage.kernels.texts import bytes_at
from storage.search.criteria import Criteria, SearchPlace
from storage.search.matcher import Matcher
from storage.search.query import Needle, query_of

BASE = 1 << 32


def find(data: bytes, start: int, stop: int, wanted: bytes) -> int:
    needle = Needle.of(wanted)
    return find_needle(Bytes(data).region, start, stop, wanted, needle.first, needle.second)


class TestFindNeedle:
    @settings(max_examples=examples(50))
    @given(st.text("ab", max_size=300), st.text("ab", min_size=1, max_size=6), st.data())
    def test_it_finds_what_python_finds(self, text: str, wanted: str, data: st.DataObject) -> None:
        start = data.draw(st.integers(0, len(text)))
        stop = data.draw(st.integers(start, len(text)))
        assert find(text.encode(), start, stop, wanted.encode()) == text.find(wanted, start, stop)

    @pytest.mark.parametrize("length", [2, 70_000])
    def test_bytes_that_look_like_the_needle_everywhere_do_not_hide_it(self, length: int) -> None:
        wanted = b"ab" + b"a" * length
        data = b"ab" * 150_000 + wanted + b"ab" * 50
        assert find(data, 0, len(data), wanted) == data.find(wanted)
        assert find(data, 0, len(data) - 101, wanted) == -1


def selected(data, criteria, *, room=100, stop=None):
    """Where the walk ended, why, and the positions noted."""
    found = np.zeros(room, np.int64)
    selection = select_records(
        Bytes(data).region, 0, len(data) if stop is None else stop, len(data), BASE, BASE + len(data),
        query_of(Matcher(criteria)), found,
    )  # fmt: skip
    return selection.position, selection.reason, found[: selection.found].tolist()


segment = partial(segment_at, BASE)


class TestSelectRecords:
    def test_a_body_that_is_compressed_or_may_be_escaped_is_left_to_others(self) -> None:
        data, positions = segment({"sys_flag": 1, "body": b"??"}, {"body": b'"\\u0061bc"'}, {"body": b'"xyz"'})
        assert selected(data, Criteria(contains=b"needle"))[2] == positions[:1]
        assert selected(data, Criteria(json_path="$=abc"))[2] == positions[:2]

    @settings(max_examples=examples(20))
    @given(
        st.lists(st.tuples(st.sampled_from([b"", b"needle", b"-" * 400, b"-" * 5000]), st.booleans()), max_size=12),
        st.sampled_from([SearchPlace.BODY, SearchPlace.PROPERTIES, SearchPlace.ANY]),
        st.booleans(),
    )
    def test_bytes_count_only_where_they_are_asked_for(self, parts, place, is_of_topic) -> None:
        """Hits lie behind, before and between the places that count, near and far."""
        data, positions = segment(
            *(
                {
                    "body": b"x" + body,
                    "keys": "a needle" if has_key else "b",
                    "topic_bytes": b"needleT" if body else b"T",
                }
                for body, has_key in parts
            )
        )
        expected = [
            position
            for position, (body, has_key) in zip(positions, parts, strict=True)
            if (
                (body == b"needle" and place is not SearchPlace.PROPERTIES)
                or (has_key and place is not SearchPlace.BODY)
            )
            and not (is_of_topic and not body)
        ]
        criteria = Criteria(contains=b"needle", place=place, topic="needleT" if is_of_topic else None)
        assert selected(data, criteria)[2] == expected

    def test_a_walk_ends_at_damage_at_a_blank_and_when_its_output_is_full(self) -> None:
        data, positions = segment({}, {}, {})
        assert selected(data, Criteria(), room=2) == (positions[2], OUTPUT_FULL, positions[:2])
        assert selected(data, Criteria(), stop=positions[1]) == (positions[1], AT_LIMIT, positions[:1])
        damaged = data[: positions[1] + 4] + b"\0\0\0\0" + data[positions[1] + 8 :]
        assert selected(damaged, Criteria()) == (positions[1], AT_DAMAGE, positions[:1])
        blank = data + (100).to_bytes(4, "big") + (0xCBD43194).to_bytes(4, "big") + bytes(92)
        assert selected(blank, Criteria()) == (len(data), AT_BLANK, positions)


texts = st.sampled_from(
    [b"", b"a", b"b", b"ab", b"abcd", b"abce", b"abcdefgh", b"abcdXfgh", b"abcdefghi", b"zbcdefghi"]
)
Numbers = npt.NDArray[np.int64]


def fixed(*values: int) -> Numbers:
    """Which a kernel does not write."""
    given = np.array(values, np.int64)
    given.flags.writeable = False
    return given


class Placed(NamedTuple):
    """Texts in the form that kernels take them in: two regions, and where each text is."""

    region: Region
    others: Region
    positions: Numbers
    lengths: Numbers


def placed(texts: list[bytes | None]) -> Placed:
    """Texts side by side, those of even rows in the region, the others in that of others."""
    halves, positions = [b"", b""], []
    for row, text in enumerate(texts):
        position = len(halves[row % 2])
        positions.append(-1 - position if row % 2 else position)
        halves[row % 2] += text or b""
    lengths = [-1 if text is None else len(text) for text in texts]
    return Placed(Bytes(halves[0]).region, Bytes(halves[1]).region, fixed(*positions), fixed(*lengths))


@given(texts=st.lists(st.binary(max_size=6), max_size=6), needle=st.binary(min_size=1, max_size=2))
def test_texts_that_hold_some_bytes_are_found(texts: list[bytes], needle: bytes) -> None:
    texts = [*texts, b"a" + needle, needle[:-1]]
    found = np.zeros(len(texts), np.int64)
    count = text_kernel.find_holding(*placed([*texts]), needle, found)
    assert found[:count].tolist() == [row for row, text in enumerate(texts) if needle in text]


def test_texts_that_meet_by_the_highest_bits_of_their_words_have_hashes_of_their_own() -> None:
    pairs = (b"abcaefgahijklmna", b"abc!efg!hijklmn!"), (b"abc\xe1efg\xe1hijklmna", b"abcaefgahijklmn\xe1")
    for one, other in pairs:
        met = [
            text_kernel.hash_text(Region(one), m) == text_kernel.hash_text(Region(other), m)
            for m in range(3, 2**62, 2**56)
        ]
        assert sum(met) < 3


BLANK_SIZE = 100
BLANK = BLANK_SIZE.to_bytes(4, "big") + b"\xcb\xd4\x31\x94"


def choose(data, wanted=None, *, limit=None, room=9, checksums=True):
    """Where it ended, why, the code of damage, the records passed and the last of them; and the positions chosen."""
    table = np.zeros(room, ROW)
    chosen = message_rows.choose_records(
        Bytes(data).region, 0, len(data) if limit is None else limit, len(data), BASE, BASE + len(TWO) + BLANK_SIZE,
        (wanted or Wanted()).query(names=True, checksums=checksums), table.view(np.int64),
    )  # fmt: skip
    told = chosen.position, chosen.reason, chosen.code, chosen.records, chosen.last
    return told, table["position"][: chosen.rows].tolist()


FIRST = record_at(BASE, tags="A", keys="k l", unique_key="u")
TWO = FIRST + record_at(BASE + len(FIRST), sys_flag=0x30, tags="B")
AT = [0, len(FIRST)]


def test_a_run_says_why_it_ended() -> None:
    for behind, reason, code in [
        (b"", codes.AT_LIMIT, 0),
        (b"\0\0\0\1", message_rows.NEED_MORE, 0),
        (BLANK, codes.AT_BLANK, 0),
        (BLANK[3:4] * 4 + BLANK[4:], codes.AT_DAMAGE, codes.BAD_BLANK),
        (bytes(8), codes.AT_NOTHING, 0),
        (bytes(7) + b"\1", codes.AT_DAMAGE, codes.BAD_MAGIC),
        (b"\0\0\0\1" + FIRST[4:], codes.AT_DAMAGE, codes.BAD_SIZE),
        (record_at(BASE + len(TWO))[:-1], message_rows.NEED_MORE, 0),
        (record_at(0), codes.AT_DAMAGE, codes.BAD_OFFSET),
        (record_at(BASE + len(TWO), crc=5), codes.AT_DAMAGE, codes.BAD_BODY_CRC),
    ]:
        assert choose(TWO + behind) == ((len(TWO), reason, code, 2, AT[1]), AT)


def test_a_row_says_where_the_parts_of_a_record_lie() -> None:
    table = np.zeros(2, ROW)
    wanted = Wanted().query(names=True, checksums=True)
    region = Bytes(TWO).region
    message_rows.choose_records(region, 0, len(TWO), len(TWO), BASE, BASE, wanted, table.view(np.int64))
    parts = ("body", "topic", "keys", "tags", "unique_key")
    found = [{part: bytes_at(region, row[part], row[f"{part}_length"]) for part in parts} for row in table]
    assert found[0] == {"body": b"hello", "topic": b"TopicTest", "keys": b"k l", "tags": b"A", "unique_key": b"u"}
    assert found[1] == {"body": b"hello", "topic": b"TopicTest", "keys": b"", "tags": b"B", "unique_key": b""}
    assert table["keys_length"].tolist() == [3, -1]
    assert table["size"].tolist() == [len(FIRST), len(TWO) - len(FIRST)]
    assert (table["store_host"] - table["born_host"]).tolist() == [16, 28]


def room(count: int) -> Numbers:
    return np.empty(count, np.int64)


MULTIPLIER = 0x2545F4914F6CDD1D


def test_checksums_are_looked_at_only_where_they_are_wanted() -> None:
    wrong = record_at(BASE + len(TWO), crc=5, topic_bytes=b"other")
    assert choose(TWO + wrong, checksums=False)[1] == [*AT, len(TWO)]
    # Of a record that nobody asks for, nothing is claimed.
    assert choose(TWO + wrong, Wanted(topics=frozenset({b"TopicTest"})))[1] == AT


def test_a_full_table_ends_a_run_before_the_next_record() -> None:
    assert choose(TWO, room=1) == ((AT[1], codes.OUTPUT_FULL, 0, 1, 0), [0])


def test_a_record_that_starts_at_the_limit_is_left() -> None:
    assert choose(TWO, limit=AT[1]) == ((AT[1], codes.AT_LIMIT, 0, 1, 0), [0])


def test_they_are_read_behind_their_positions() -> None:
    region, numbers = Bytes(bytes(range(100, 112))).region, np.empty(2, np.int64)
    message_rows.load_numbers(region, np.array([1, 9]), -1, 32, numbers)
    assert numbers.tolist() == [0x64656667, 0x6C6D6E6F]
    message_rows.load_numbers(region, np.array([1, 5]), -1, 64, numbers)
    assert numbers.tolist() == [0x6465666768696A6B, 0x68696A6B6C6D6E6F]


def test_a_needle_at_either_end_is_found_and_one_over_the_end_is_not() -> None:
    for length in (63, 64, 65, 128, 200):
        data = b"-" * length + b"needle" + b"-" * 70
        assert find(data, length, length + 6, b"needle") == length
        assert find(data, 0, length + 6, b"needle") == length
        assert find(data, 0, length + 5, b"needle") == -1
        assert find(data, length + 1, len(data), b"needle") == -1


def test_a_text_that_bytes_may_stand_for_in_several_ways_rules_nothing_out() -> None:
    data, positions = segment({"tags": "A"}, {})
    assert selected(data, Criteria(tag="\ufffd"))[2] == positions


def test_more_texts_than_there_is_room_for_are_too_many() -> None:
    places, codes = placed([b"a", b"b", b"c"]), np.empty(3, np.int32)
    for most, expected in ((3, 3), (2, text_kernel.TOO_MANY), (0, text_kernel.TOO_MANY)):
        assert text_kernel.code_texts(*places, MULTIPLIER, codes, room(most), room(most)) == expected
