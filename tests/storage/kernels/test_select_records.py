"""The first look of a content search, against Python's own search and against decoded records."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from kernel_memory import Bytes, segment_at
from storage.kernels.records import AT_BLANK, AT_DAMAGE, AT_LIMIT, OUTPUT_FULL
from storage.kernels.select_records import find_needle, select_records
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

    def test_a_needle_at_either_end_is_found_and_one_over_the_end_is_not(self) -> None:
        for length in (63, 64, 65, 128, 200):
            data = b"-" * length + b"needle" + b"-" * 70
            assert find(data, length, length + 6, b"needle") == length
            assert find(data, 0, length + 6, b"needle") == length
            assert find(data, 0, length + 5, b"needle") == -1
            assert find(data, length + 1, len(data), b"needle") == -1

    @pytest.mark.parametrize("length", [2, 70_000])
    def test_bytes_that_look_like_the_needle_everywhere_do_not_hide_it(self, length: int) -> None:
        wanted = b"ab" + b"a" * length
        data = b"ab" * 150_000 + wanted + b"ab" * 50
        assert find(data, 0, len(data), wanted) == data.find(wanted)
        assert find(data, 0, len(data) - 101, wanted) == -1


def selected(
    data: bytes, criteria: Criteria, *, room: int = 100, stop: int | None = None
) -> tuple[int, int, list[int]]:
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
    def test_bytes_count_only_where_they_are_asked_for(
        self, parts: list[tuple[bytes, bool]], place: SearchPlace, is_of_topic: bool
    ) -> None:
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

    def test_a_text_that_bytes_may_stand_for_in_several_ways_rules_nothing_out(self) -> None:
        data, positions = segment({"tags": "A"}, {})
        assert selected(data, Criteria(tag="\ufffd"))[2] == positions

    def test_a_walk_ends_at_damage_at_a_blank_and_when_its_output_is_full(self) -> None:
        data, positions = segment({}, {}, {})
        assert selected(data, Criteria(), room=2) == (positions[2], OUTPUT_FULL, positions[:2])
        assert selected(data, Criteria(), stop=positions[1]) == (positions[1], AT_LIMIT, positions[:1])
        damaged = data[: positions[1] + 4] + b"\0\0\0\0" + data[positions[1] + 8 :]
        assert selected(damaged, Criteria()) == (positions[1], AT_DAMAGE, positions[:1])
        blank = data + (100).to_bytes(4, "big") + (0xCBD43194).to_bytes(4, "big") + bytes(92)
        assert selected(blank, Criteria()) == (len(data), AT_BLANK, positions)
