"""Units of queues and records of a log, chosen by the kernels as loops choose them."""

import tempfile
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from kernel_memory import Bytes, HeldFile, record_at, segment_at
from oracles import java_hash, packed
from queue_stores import unit_bytes
from storage.columns.rows import ROW
from storage.columns.wanted import Wanted
from storage.filter.base import CHOICE_OF_EVERYTHING
from storage.filter.expression import ExpressionFilter
from storage.filter.sql92 import parse
from storage.filter.tag import choice_of_tags
from storage.kernels import message_rows
from storage.kernels import pulls as kernel
from storage.kernels import records as codes
from storage.kernels import texts as text_kernel
from storage.kernels.messages import ANY_OFFSET, NOT_FOUND, MessageSearch, find_messages
from storage.kernels.records import AT_BLANK, AT_DAMAGE, AT_LIMIT, OUTPUT_FULL
from storage.kernels.region import Region
from storage.kernels.select_records import find_needle, select_records
from storage.kernels.store_view import LogView
from storage.kernels.texts import bytes_at
from storage.log.commit_log import CommitLog
from storage.queue.unit_struct import UNIT
from storage.search.criteria import Criteria, SearchPlace
from storage.search.matcher import Matcher
from storage.search.query import Needle, query_of
from store_files import property_bytes
from store_writer import StoreWriter, Written

Log = tuple[CommitLog, list[Written]]


def written_log(root, count=40):
    writer = StoreWriter(root)
    for number in range(count):
        writer.append("T", b"body", queue_id=2, properties={"number": str(number)})
    writer.flush()
    return CommitLog.open([root / "commitlog"]), writer.written


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Log:
    return written_log(tmp_path_factory.mktemp("pulls"))


def unit(written: Written, tags_code: int = 0, size: int | None = None) -> bytes:
    size = written.size if size is None else size
    return packed(written.physical_offset, 8) + packed(size, 4) + packed(tags_code, 8)


def call(log, units, codes=None, *, choice=None, maximum=99, maximum_bytes=1 << 40, name=("T", 2), ahead=0, behind=0):
    wanted = choice or (CHOICE_OF_EVERYTHING if codes is None else choice_of_tags(codes))
    pulled = kernel.pull(log.view, HeldFile(b"".join(units)), 0, 0, len(units), name[1], name[0].encode(), wanted,
                         behind, len(units) - ahead - behind, maximum, maximum_bytes, 0)  # fmt: skip
    return pulled.passed, [int.from_bytes(record[28:36]) for record in pulled.records] if pulled.passed >= 0 else []


def offsets(written: list[Written]) -> list[int]:
    return [one.physical_offset for one in written]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Log:
    return written_log(tmp_path_factory.mktemp("many"), 700)


@given(count=st.integers(1, 700), codes=st.lists(st.integers(0, 2**32 - 1) | st.integers(0, 40), max_size=60),
       others=st.lists(st.integers(0, 2**32 - 1) | st.integers(0, 40), min_size=1, max_size=5),
       seed=st.integers(0, 2**32), share=st.floats(0, 1))  # fmt: skip
def test_of_any_number_of_tags_none_is_taken_for_another(many, count, codes, others, seed, share) -> None:
    (log, written), random = many, Random(seed)
    tags = [random.choice(codes if codes and random.random() < share else others) for _ in range(count)]
    units = [unit(each, tag - (tag >> 31 << 32)) for each, tag in zip(written, tags, strict=False)]
    wanted = [number for number, tag in enumerate(tags) if tag in codes]
    passed = wanted[31] + 1 if len(wanted) >= 32 else count
    expected = offsets([written[number] for number in wanted[:32]])
    assert call(log, units, codes) == (passed, expected)


def test_units_that_do_not_lead_from_one_record_to_the_next_are_for_python(held: Log) -> None:
    log, written = held
    units = list(map(unit, written[:5]))
    for chosen in (None, [0], [7]):
        assert call(log, units, chosen, ahead=1)[0] == 4
        assert call(log, [*units[:4], bytes(20)], chosen, ahead=1)[0] == (4 if chosen is None else kernel.ODD)
        for number in range(5):
            elsewhere = unit(written[0 if number > 2 else 4], tags_code=5)
            assert call(log, [*units[:number], elsewhere, *units[number + 1 :]], chosen)[0] == kernel.ODD
    back = [units[3], units[1], units[4]]
    assert call(log, back[1:], [7])[0] == 2
    assert call(log, back, [7], behind=1)[0] == kernel.ODD


def test_a_message_that_an_expression_wants_must_be_intact(tmp_path) -> None:
    log, written = written_log(tmp_path)
    path = log.segments[0].file.path
    content = bytearray(path.read_bytes())
    content[written[1].physical_offset + written[1].record.index(b"body")] ^= 1
    path.write_bytes(content)
    for text, passed in (("number = 1", kernel.ODD), ("number <> 1", 3)):
        choice = ExpressionFilter(parse(text)).choice
        assert call(CommitLog.open([path.parent]), list(map(unit, written[:3])), choice=choice)[0] == passed
    with pytest.raises(ValueError, match="without one"):
        kernel.Choice(kernel.BY_EXPRESSION)


def test_units_and_records_that_are_not_in_memory_are_told(held: Log) -> None:
    log, written = held
    with tempfile.TemporaryFile() as short:  # as short as it is, every probe comes back short, as over cold pages
        file = HeldFile(b"".join(map(unit, written[:3])), short.fileno())
        arguments = (0, 0, 3, 2, b"T", CHOICE_OF_EVERYTHING, 1, 1, 9, 1 << 40, 1000)
        pulled = kernel.pull(log.view, file, *arguments)
        assert (pulled.passed, pulled.cold_file) == (kernel.UNITS_COLD, file)
        assert (pulled.cold_position, pulled.cold_length) == (0, 60)
        file.heat[:] = 1000
        segment = HeldFile(bytes(log.segments[0].file.view), short.fileno())
        pulled = kernel.pull(LogView([(0, segment, log.end)]), file, *arguments)
        assert (pulled.passed, pulled.cold_file) == (kernel.RECORD_COLD, segment)
        assert (pulled.cold_position, pulled.cold_length) == (written[1].physical_offset, written[1].size)


LIGHT = ("INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET")


@dataclass
class GrownLog:
    data: bytes = b""
    starts: list[int] = field(default_factory=list)

    def add(self, **changes: object) -> None:
        self.starts.append(len(self.data))
        self.data += record_at(len(self.data), **changes)

    def add_light(self, names: str, offsets: str) -> None:
        self.add(properties_bytes=property_bytes(dict(zip(LIGHT, (names, offsets), strict=True))))

    def memory(self) -> np.ndarray:
        return np.frombuffer(self.data + bytes(200), np.uint8).copy()


@pytest.fixture
def log() -> GrownLog:
    log = GrownLog()
    for number in range(6):
        log.add(keys=f"k{number}", sys_flag=(0, 0x30)[number % 2], queue_offset=7 + number)
    return log


@dataclass
class Search:
    first: int
    count: int = 1
    topic: bytes = b"TopicTest"
    queue_id: int = 1
    beyond: int = 64
    grows: bool = False

    def __post_init__(self) -> None:
        # An array, as in the product: sanitizers let kernels write a bytearray as a copy.
        self.units = np.frombuffer((packed(NOT_FOUND, 8) + bytes(12)) * self.count, np.uint8).copy()
        self.kernel = MessageSearch(self.topic, self.queue_id, self.first, self.units, self.beyond, grows=self.grows)

    def found(self) -> list[int]:
        return [place for place, _, _ in UNIT.iter_unpack(self.units.tobytes())]


def search(data: np.ndarray, searches: list[Search], start: int = 0, stop: int | None = None) -> tuple[int, list[int]]:
    """Where the search ended, and what is left of each."""
    limit = data.size if stop is None else stop
    end = find_messages(Region(data), start, limit, data.size, 0, data.size, [each.kernel for each in searches])
    return end, [each.kernel.left for each in searches]


def find_message(data: np.ndarray, start: int, queue_offset: int, **more: object) -> int:
    one = Search(queue_offset, **more)  # type: ignore[arg-type]
    search(data, [one], start)
    return one.found()[0]


def test_a_search_that_grows_begins_with_the_first_message_and_stops_where_it_has_no_room(log: GrownLog) -> None:
    data, other = log.memory(), Search(12)
    one = Search(ANY_OFFSET, 2, grows=True)
    assert search(data, [one, other]) == (log.starts[2], [1, 1])
    assert (one.kernel.first, one.kernel.is_full, one.found()) == (7, True, log.starts[:2])
    four = Search(7, 4, grows=True)
    assert search(data, [four, other]) == (log.starts[4], [1, 1])
    eight = Search(7, 8, grows=True)
    end, left = search(data, [eight, other])
    assert (end >= len(log.data), left, eight.kernel.is_full) == (True, [3, 0], False)
    assert (eight.found(), other.found()) == ([*log.starts, NOT_FOUND, NOT_FOUND], log.starts[5:])


def test_damage_is_stepped_over_and_nothing_behind_the_stop_is_found(log: GrownLog) -> None:
    data = log.memory()
    data[log.starts[1] + 4] = 0
    assert find_message(data, log.starts[1], ANY_OFFSET) == log.starts[2]
    one = Search(ANY_OFFSET)
    assert search(data, [one], log.starts[1], log.starts[2]) == (log.starts[2], [1])
    data[: data.size] = 0xFF
    assert find_message(data, 0, ANY_OFFSET) == NOT_FOUND


def test_messages_of_light_queues_are_found_by_what_they_say_of_them() -> None:
    log = GrownLog()
    log.add_light("%LMQ%a,%LMQ%b", "7,0")
    log.add_light("%LMQ%b", "1")
    log.add_light("%LMQ%ab,%LMQ%a", "9,8")
    log.add_light("%LMQ%b,%LMQ%a", "2")
    log.add_light("%LMQ%a", "x")
    log.add_light("%LMQ%b,,", "3")
    log.add(queue_offset=9)
    data = log.memory()
    first, second, third = (Search(0, 10, topic=b"%LMQ%" + name, queue_id=0) for name in (b"a", b"b", b"ab"))
    search(data, [first, second, third])
    assert {n: place for n, place in enumerate(first.found()) if place >= 0} == {7: log.starts[0], 8: log.starts[2]}
    assert second.found() == [*log.starts[:2], NOT_FOUND, log.starts[5], *[NOT_FOUND] * 6]
    assert third.found() == [*[NOT_FOUND] * 9, log.starts[2]]


@pytest.mark.parametrize("tag", ["", "TagA", "a b", "ä", "日本", "𝄞"])
def test_a_unit_is_that_which_a_broker_makes_of_the_record(log: GrownLog, tag: str) -> None:
    log.add(queue_offset=90, properties_bytes=property_bytes({"KEYS": "k", "TAGS": tag}))
    one = Search(90)
    search(log.memory(), [one])
    size = len(log.data) - log.starts[-1]
    assert bytes(one.units) == unit_bytes(log.starts[-1], size, java_hash(tag))


def test_damaged_messages_are_none_and_the_first_of_one_offset_counts(log) -> None:
    # A message that is damaged or not committed is none.
    data = log.memory()
    data[log.starts[2] + 88] ^= 1
    assert find_message(data, 0, 9) == NOT_FOUND
    for flags, is_found in ((0x4, False), (0xC, False), (0x8, True)):
        other = GrownLog()
        other.add(sys_flag=flags)
        assert (find_message(other.memory(), 0, 7) == 0) == is_found
    # A search that grows makes no room for offsets far beyond.
    one = Search(3, 2, grows=True, beyond=6)
    assert search(log.memory(), [one]) == (len(log.data), [0])
    assert not one.kernel.is_full
    # The first of two messages with one offset counts.
    log.add(queue_offset=8)
    assert find_message(log.memory(), 0, 8) == log.starts[1]
    assert find_message(log.memory(), log.starts[2], 8) == log.starts[6]


def test_a_record_that_names_a_light_queue_many_times_is_noted_once_with_its_first_offset() -> None:
    log = GrownLog()
    log.add_light(",".join(["%LMQ%a"] * 200), ",".join(["50"] * 200))
    log.add_light(",".join(["%LMQ%a"] * 200), ",".join(["3", *["4"] * 199]))
    one = Search(0, 10, topic=b"%LMQ%a", queue_id=0)
    search(log.memory(), [one])
    assert one.found() == [*[NOT_FOUND] * 3, log.starts[1], *[NOT_FOUND] * 6]


def test_codes_are_compared_by_their_low_32_bits_and_one_of_an_extension_is_odd(held: Log) -> None:
    log, written = held
    units = [unit(one, code) for one, code in zip(written[:4], [5, -5, 1 << 31, -(1 << 31)], strict=True)]
    assert call(log, units, [1 << 31]) == (4, offsets(written[2:4]))
    assert call(log, units, [(1 << 32) - 5, 5]) == (4, offsets(written[:2]))
    assert call(log, units, []) == (4, [])
    extended = unit(written[0], -(1 << 63))
    assert call(log, [extended], [5])[0] == kernel.ODD
    assert call(log, [extended]) == (1, offsets(written[:1]))


BASE = 1 << 32


def find(data: bytes, start: int, stop: int, wanted: bytes) -> int:
    needle = Needle.of(wanted)
    return find_needle(Bytes(data).region, start, stop, wanted, needle.first, needle.second)


@settings(max_examples=examples(50))
@given(st.text("ab", max_size=300), st.text("ab", min_size=1, max_size=6), st.data())
def test_it_finds_what_python_finds(text: str, wanted: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, len(text)))
    assert find(text.encode(), start, stop, wanted.encode()) == text.find(wanted, start, stop)


@pytest.mark.parametrize("length", [2, 70_000])
def test_bytes_that_look_like_the_needle_everywhere_do_not_hide_it(length: int) -> None:
    wanted = b"ab" + b"a" * length
    data = b"ab" * 150_000 + wanted + b"ab" * 50
    assert find(data, 0, len(data), wanted) == data.find(wanted)
    assert find(data, 0, len(data) - 101, wanted) == -1


def selected(data, criteria, *, room=100, stop=None):
    """Where the walk ended, why, and the positions noted."""
    found = np.zeros(room, np.int64)
    selection = select_records(Bytes(data).region, 0, len(data) if stop is None else stop, len(data), BASE,
                               BASE + len(data), query_of(Matcher(criteria)), found)  # fmt: skip
    return selection.position, selection.reason, found[: selection.found].tolist()


segment = partial(segment_at, BASE)


class TestSelectRecords:
    def test_a_body_that_is_compressed_or_may_be_escaped_is_left_to_others(self) -> None:
        data, positions = segment({"sys_flag": 1, "body": b"??"}, {"body": b'"\\u0061bc"'}, {"body": b'"xyz"'})
        assert selected(data, Criteria(contains=b"needle"))[2] == positions[:1]
        assert selected(data, Criteria(json_path="$=abc"))[2] == positions[:2]

    @settings(max_examples=examples(20))
    @given(st.lists(st.tuples(st.sampled_from([b"", b"needle", b"-" * 400, b"-" * 5000]), st.booleans()), max_size=12),
           st.sampled_from([SearchPlace.BODY, SearchPlace.PROPERTIES, SearchPlace.ANY]), st.booleans())  # fmt: skip
    def test_bytes_count_only_where_they_are_asked_for(self, parts, place, is_of_topic) -> None:
        """Hits lie behind, before and between the places that count, near and far."""
        topics = [b"needleT" if body else b"T" for body, _ in parts]
        keys = ["a needle" if has_key else "b" for _, has_key in parts]
        data, positions = segment(
            *(
                {"body": b"x" + body, "keys": key, "topic_bytes": topic}
                for (body, _), key, topic in zip(parts, keys, topics, strict=True)
            )
        )
        in_body, in_keys = place is not SearchPlace.PROPERTIES, place is not SearchPlace.BODY
        expected = [
            position
            for position, (body, has_key) in zip(positions, parts, strict=True)
            if ((body == b"needle" and in_body) or (has_key and in_keys)) and (body or not is_of_topic)
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


def test_a_run_chooses_and_says_why_it_ended() -> None:
    # A run says why it ended.
    for behind, reason, code in [
        (b"", codes.AT_LIMIT, 0), (b"\0\0\0\1", message_rows.NEED_MORE, 0), (BLANK, codes.AT_BLANK, 0),
        (BLANK[3:4] * 4 + BLANK[4:], codes.AT_DAMAGE, codes.BAD_BLANK), (bytes(8), codes.AT_NOTHING, 0),
        (bytes(7) + b"\1", codes.AT_DAMAGE, codes.BAD_MAGIC),
        (b"\0\0\0\1" + FIRST[4:], codes.AT_DAMAGE, codes.BAD_SIZE),
        (record_at(BASE + len(TWO))[:-1], message_rows.NEED_MORE, 0), (record_at(0), codes.AT_DAMAGE, codes.BAD_OFFSET),
        (record_at(BASE + len(TWO), crc=5), codes.AT_DAMAGE, codes.BAD_BODY_CRC),
    ]:  # fmt: skip
        assert choose(TWO + behind) == ((len(TWO), reason, code, 2, AT[1]), AT)
    # Checksums are looked at only where they are wanted.
    wrong = record_at(BASE + len(TWO), crc=5, topic_bytes=b"other")
    assert choose(TWO + wrong, checksums=False)[1] == [*AT, len(TWO)]
    # Of a record that nobody asks for, nothing is claimed.
    assert choose(TWO + wrong, Wanted(topics=frozenset({b"TopicTest"})))[1] == AT
    # A full table ends a run before the next record.
    assert choose(TWO, room=1) == ((AT[1], codes.OUTPUT_FULL, 0, 1, 0), [0])
    # A record that starts at the limit is left.
    assert choose(TWO, limit=AT[1]) == ((AT[1], codes.AT_LIMIT, 0, 1, 0), [0])


def test_a_row_says_where_the_parts_of_a_record_lie() -> None:
    table = np.zeros(2, ROW)
    wanted = Wanted().query(names=True, checksums=True)
    region = Bytes(TWO).region
    message_rows.choose_records(region, 0, len(TWO), len(TWO), BASE, BASE, wanted, table.view(np.int64))
    parts = ("body", "topic", "keys", "tags", "unique_key")
    found = [{part: bytes_at(region, row[part], row[f"{part}_length"]) for part in parts} for row in table]
    assert found[0] == {"body": b"hello", "topic": b"TopicTest", "keys": b"k l", "tags": b"A", "unique_key": b"u"}
    assert found[1] == {"body": b"hello", "topic": b"TopicTest", "keys": b"", "tags": b"B", "unique_key": b""}
    assert (table["keys_length"].tolist(), table["size"].tolist()) == ([3, -1], [len(FIRST), len(TWO) - len(FIRST)])
    assert (table["store_host"] - table["born_host"]).tolist() == [16, 28]


def room(count: int) -> Numbers:
    return np.empty(count, np.int64)


MULTIPLIER = 0x2545F4914F6CDD1D


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
