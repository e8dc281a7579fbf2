"""Pulls: every recorded one again, a plain model of the broker's rules, and what a damaged store makes of them."""

import json
import lzma
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golden_frames import Exchange, pair_up, sessions
from golden_store import G1
from oracles import Record, java_hash
from protocol.codes import RequestCode
from protocol.errors import TruncatedFile
from protocol.properties import property_value
from queue_stores import open_queues, unit_bytes
from storage.files.mapped_file import MappedFile
from storage.files.waiting import Unfinished, begin
from storage.filter.expression import ExpressionFilter
from storage.filter.sql92 import parse
from storage.filter.tag import TagFilter, parse_tag_expression
from storage.kernels.pulls import RECORD_COLD, UNITS_COLD
from storage.kernels.pulls import pull as kernel_pull
from storage.query.get_message import GetMessageResult, GetMessageStatus, Lost, get_message, get_message_lookup
from storage.queue.consume_queue import ConsumeQueue
from storage.queue.consume_queue_ext import ConsumeQueueExtUnit
from store_files import write_file
from store_queries import at_once, wait_of
from store_writer import StoreWriter

FILE_SIZE = 400  # twenty units
PLENTY = (1 << 31) - 1


def pull(root: Path, queue_offset: int = 0, maximum: int = 32, **more: Any) -> GetMessageResult:
    """A pull from queue 0 of topic T."""
    queues, _ = open_queues(root)
    options = {"max_bytes": PLENTY, "message_filter": None, "topic": "T", "queue_id": 0, **more}
    return get_message(queues, queue_offset=queue_offset, max_messages=maximum, **options)


def tag_filter(text: str) -> TagFilter:
    return TagFilter(parse_tag_expression(text))


class AskedFilter:
    """A tag filter that does not say that it is one: a pull then asks it unit by unit, without the kernel."""

    needs_properties = False
    choice = None

    def __init__(self, text: str) -> None:
        self._chosen = tag_filter(text)
        self.matches_everything = False

    def matches_consume_queue_entry(self, tags_code: int | None, extension: ConsumeQueueExtUnit | None) -> bool:
        return self._chosen.matches_consume_queue_entry(tags_code, extension)

    def matches_commit_log(self, properties: bytes | memoryview) -> bool:
        raise AssertionError("the second stage is not asked")


def make_store(root: Path, messages: int, **options: Any) -> StoreWriter:
    writer = StoreWriter(root, queue_file_size=FILE_SIZE, **options)
    for number in range(messages):
        writer.append("T", b"message %d" % number, tags=f"Tag{number % 3}")
    writer.flush()
    return writer


def bodies(result: GetMessageResult) -> list[bytes]:
    return [bytes(record) for record in result.records]


# --- what a broker recorded -------------------------------------------------------------------------------------------


def recorded_pulls() -> list[Exchange]:
    """Every recorded pull of all, or by tags in the request itself: push consumers' tags came with heartbeats."""
    found = list(sessions()[0].exchanges())
    with lzma.open(G1 / "client-flows.jsonl.xz", "rt", encoding="utf-8") as lines:
        frames = [frame for frame in map(json.loads, lines) if "opaque" in frame["header"]]
    requests = [
        frame
        for frame in frames
        if frame["header"]["code"] in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
        and not frame["header"]["flag"] & 1
    ]
    ends = {(frame["dst"], frame["src"], frame["header"]["opaque"]) for frame in frames if frame["header"]["flag"] & 1}
    for request in requests:  # a client that stopped did not wait for the answer to its last pull
        place = request["src"], request["dst"], request["header"]["opaque"]
        if place in ends:
            found += pair_up([frame for frame in frames if frame is request or _is_answer(frame, place)])
    return [
        exchange
        for exchange in found
        if exchange.code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
        and "subscription" in exchange.ext_fields
    ]


def _is_answer(frame: dict[str, Any], place: tuple[int, int, int]) -> bool:
    header = frame["header"]
    return bool(header["flag"] & 1) and (frame["dst"], frame["src"], header["opaque"]) == place


@pytest.mark.parametrize("filter_of", [tag_filter, AskedFilter])
def test_every_recorded_pull_is_answered_as_recorded(filter_of: Callable[[str], Any], g1_store: Path) -> None:
    exchanges = recorded_pulls()
    assert len(exchanges) > 20
    queues, _ = open_queues(g1_store)
    for exchange in exchanges:
        fields, recorded = exchange.ext_fields, exchange.recorded
        assert recorded is not None
        result = get_message(
            queues, fields["topic"], int(fields["queueId"]), int(fields["queueOffset"]),
            int(fields["maxMsgNums"]), int(fields.get("maxMsgBytes", PLENTY)), filter_of(fields["subscription"]),
        )  # fmt: skip
        assert result.status.name == recorded.remark, str(exchange)
        expected = tuple(int(recorded.ext_fields[name]) for name in ("nextBeginOffset", "minOffset", "maxOffset"))
        assert (result.next_begin_offset, result.min_offset, result.max_offset) == expected, str(exchange)
        assert b"".join(result.records) == recorded.body, str(exchange)


# --- a model of the rules ---------------------------------------------------------------------------------------------


@dataclass
class Model:
    """The broker's loop over one file of units, in its own order of checks (store-format §5.4)."""

    units: list[tuple[int, int, int]]
    records: Mapping[int, Record]
    per_file: int

    def pull(self, offset: int, maximum: int, max_bytes: int, codes: set[int] | None) -> tuple[str, int, list[int]]:
        end = len(self.units)
        if not end:
            return "NO_MESSAGE_IN_QUEUE", 0, []
        if offset < 0:
            return "OFFSET_TOO_SMALL", 0, []
        if offset >= end:
            return ("OFFSET_OVERFLOW_ONE" if offset == end else "OFFSET_OVERFLOW_BADLY"), end, []
        status, following, found, count, size_so_far = "NO_MATCHED_MESSAGE", offset, list[int](), 0, 0
        stop = min(end, (offset // self.per_file + 1) * self.per_file)
        for number in range(offset, stop):
            place, size, code = self.units[number]
            if (number - offset) * 20 >= max(16000, maximum * 20):
                break
            if count and (count + 1 > maximum or size_so_far + size > max(max_bytes, 100)):
                break
            if count and (size_so_far + size > 262144 or count > 31):
                break
            following = number + 1
            if codes is not None and code not in codes:
                status = status if found else "NO_MATCHED_MESSAGE"
                continue
            if place not in self.records:
                status = status if found else "MESSAGE_WAS_REMOVING"
                continue
            status = "FOUND"
            found.append(place)
            count, size_so_far = count + 1, size_so_far + size
        return status, following, found


@settings(max_examples=max(30, settings.default.max_examples))
@given(
    sizes=st.lists(st.integers(0, 400), max_size=70),
    damaged=st.sets(st.integers(0, 69), max_size=4),
    offset=st.integers(-1, 72),
    maximum=st.integers(-1, 40),
    max_bytes=st.integers(-1, 3000),
    tags=st.sampled_from(["*", "Tag0", "Tag1 || Tag2", "nosuch"]),
)
def test_every_pull_equals_the_model(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[int],
    damaged: set[int],
    offset: int,
    maximum: int,
    max_bytes: int,
    tags: str,
) -> None:
    root = tmp_path_factory.mktemp("pull")
    writer = StoreWriter(root, queue_file_size=FILE_SIZE)
    for number, size in enumerate(sizes):
        writer.append("T", bytes(size), tags=f"Tag{number % 3}")
    writer.roll()  # damage in the last segment would end the log there
    writer.append("other", b"")
    for number in damaged & set(range(len(sizes))):
        writer.overwrite(writer.written[number].physical_offset + 8, b"\x7f\xff\xff\xff" if sizes[number] else b"")
    writer.flush()
    records = {record.physical_offset: record for record in writer.records}
    units = [(w.physical_offset, w.size, java_hash(f"Tag{n % 3}")) for n, w in enumerate(writer.written[:-1])]
    codes = None if tags == "*" else {java_hash(tag.strip()) for tag in tags.split("||")}
    expected = Model(units, records, FILE_SIZE // 20).pull(offset, maximum, max_bytes, codes)
    for chosen in (tag_filter(tags), AskedFilter(tags)):
        result = pull(root, offset, maximum, max_bytes=max_bytes, message_filter=chosen)
        found = [int.from_bytes(record[28:36], "big") for record in result.records]
        assert (result.status.name, result.next_begin_offset, found) == expected


# --- limits -----------------------------------------------------------------------------------------------------------


def test_a_pull_ends_after_32_messages_or_256_kib_or_with_the_file(tmp_path: Path) -> None:
    make_store(tmp_path / "many", 60)
    writer = StoreWriter(tmp_path / "long", segment_size=1 << 20)
    for _ in range(6):
        writer.append("T", bytes(60_000))
    writer.flush()
    assert len(pull(tmp_path / "many", 0, 1000).records) == 20  # with the queue's file
    assert len(pull(tmp_path / "long").records) == 4
    writer = StoreWriter(tmp_path / "one file")
    for _ in range(50):
        writer.append("T", b"")
    writer.flush()
    result = pull(tmp_path / "one file", 0, 1000)
    assert (len(result.records), result.next_begin_offset) == (32, 32)


def test_a_filter_looks_at_800_units_a_pull_unless_more_messages_are_asked_for(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, queue_file_size=60_000)
    for _ in range(1000):
        writer.append("T", b"", tags="some")
    writer.flush()
    result = pull(tmp_path, 5, 32, message_filter=tag_filter("other"))
    assert (result.status, result.next_begin_offset) == (GetMessageStatus.NO_MATCHED_MESSAGE, 805)
    assert pull(tmp_path, 0, 900, message_filter=tag_filter("other")).next_begin_offset == 900
    assert pull(tmp_path, 0, PLENTY, message_filter=tag_filter("other")).next_begin_offset == 1000


def test_batches_count_with_all_their_messages(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path)
    for _ in range(9):
        writer.append_inner_batch("T", [(b"", {})] * 5)
    writer.flush()
    result = pull(tmp_path, 7, 12)
    assert bodies(result) == [written.record for written in writer.written[1:3]]
    assert (result.next_begin_offset, result.max_offset) == (15, 45)
    assert len(pull(tmp_path, 0, 100).records) == 7  # 30 messages leave room for another five, 35 do not


# --- queues that are not there, or not whole --------------------------------------------------------------------------


@pytest.mark.parametrize(("topic", "queue_id"), [("T", 7), ("nosuch", 0), ("..", 0), ("T/0", 0), ("", -1)])
def test_a_queue_that_does_not_exist_is_empty(topic: str, queue_id: int, tmp_path: Path) -> None:
    make_store(tmp_path, 3)
    result = pull(tmp_path, 5, topic=topic, queue_id=queue_id)
    assert result == GetMessageResult(GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0, [])


def test_messages_that_the_log_has_not_either_are_counted(tmp_path: Path) -> None:
    writer = make_store(tmp_path, 90)
    (tmp_path / "consumequeue" / "T" / "0" / f"{FILE_SIZE:020d}").unlink()
    for number in (20, 27, 28, 39):
        writer.overwrite(writer.written[number].physical_offset, bytes(writer.written[number].size))
    result = pull(tmp_path, 25)
    assert bodies(result) == [writer.written[number].record for number in range(25, 60) if number not in (27, 28, 39)]
    assert (result.next_begin_offset, result.lost) == (60, Lost(3, 27, 40))
    assert str(result.lost).startswith("3 messages are lost at queue offsets 27 to 39: ")
    assert pull(tmp_path, 28).lost == Lost(2, 28, 40)
    assert str(pull(tmp_path, 39).lost).startswith("1 message is lost at queue offset")
    assert pull(tmp_path, 40).lost is None


def test_the_kernel_pulls_messages_that_were_found_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = StoreWriter(tmp_path, queue_file_size=20 * 1000)
    for number in range(2010):
        writer.append("T", b"", tags=f"Tag{number % 3}", properties={"n": str(number)}, index=False)
    writer.flush()
    (tmp_path / "consumequeue" / "T" / "0" / f"{20 * 1000:020d}").unlink()
    queues, _ = open_queues(tmp_path)
    assert len(get_message(queues, "T", 0, 1011, 1, PLENTY).records) == 1
    monkeypatch.setattr("storage.query.get_message._collect", None)
    for message_filter, wanted in (
        (None, range(1011, 1043)),
        (tag_filter("Tag1"), range(1012, 1108, 3)),
        (ExpressionFilter(parse("n > 1100")), range(1101, 1133)),
    ):
        result = get_message(queues, "T", 0, 1011, 32, PLENTY, message_filter)
        assert bodies(result) == [writer.written[number].record for number in wanted]
        assert (result.next_begin_offset, result.max_offset) == (wanted[-1] + 1, 2010)


def test_a_message_whose_unit_is_zeroed_is_filtered_by_its_own_tag(tmp_path: Path) -> None:
    writer = make_store(tmp_path, 10)
    write_file(tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}", FILE_SIZE, {80: bytes(20)})
    for tag, filters in ((f"Tag{n}", (tag_filter(f"Tag{n}"), AskedFilter(f"Tag{n}"))) for n in range(3)):
        expected = [written.record for n, written in enumerate(writer.written) if f"Tag{n % 3}" == tag]
        for chosen in filters:
            assert bodies(pull(tmp_path, message_filter=chosen)) == expected


@pytest.mark.parametrize(("topic", "other"), [("T", "TT"), ("TT", "T")])
def test_a_message_of_a_topic_with_a_similar_name_is_left_out(topic: str, other: str, tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path)
    stray = writer.append(other, topic.encode())
    own = [writer.append(topic, b"1"), writer.append(topic, b"2")]
    writer.flush()
    writer.overwrite(own[0].physical_offset, bytes(own[0].size))  # so that the log has it no more
    unit = unit_bytes(stray.physical_offset, stray.size, 0)
    write_file(tmp_path / "consumequeue" / topic / "0" / f"{0:020d}", 2000, {0: unit})
    assert bodies(pull(tmp_path, topic=topic)) == [own[1].record]


# --- filters ----------------------------------------------------------------------------------------------------------


class PropertyFilter:
    """A filter of the second stage: messages whose property `a` is 1."""

    choice = None
    matches_everything = False
    needs_properties = True

    def matches_consume_queue_entry(self, tags_code: int | None, extension: ConsumeQueueExtUnit | None) -> bool:
        return True

    def matches_commit_log(self, properties: bytes | memoryview) -> bool:
        return property_value(properties, "a") == "1"


def test_the_second_stage_sees_the_properties(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path)
    for value in ("1", "2", "11", "1"):
        writer.append("T", b"", properties={"a": value}, tags="Tag")
    writer.flush()
    result = pull(tmp_path, message_filter=PropertyFilter())
    assert bodies(result) == [writer.written[0].record, writer.written[3].record]
    nothing = pull(tmp_path, 1, 1, message_filter=PropertyFilter())
    assert (len(nothing.records), nothing.next_begin_offset) == (1, 4)


def test_tags_are_compared_through_the_extension_and_a_lost_one_matches(tmp_path: Path) -> None:
    writer = make_store(tmp_path, 6, ext_bit_map=b"\1" * 14, ext_file_size=80)
    result = pull(tmp_path, message_filter=tag_filter("Tag1"))
    assert bodies(result) == [writer.written[1].record, writer.written[4].record]
    (tmp_path / "consumequeue_ext" / "T" / "0" / f"{0:020d}").unlink()
    result = pull(tmp_path, message_filter=tag_filter("Tag1"))
    assert bodies(result) == [writer.written[number].record for number in (0, 1, 4)]


# --- what a pull waits for --------------------------------------------------------------------------------------------


def test_where_a_record_is_cold_the_pull_says_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_store(tmp_path, 3)

    warmed: list[tuple[int, int]] = []
    queues, _ = open_queues(tmp_path)
    file = queues.commit_log.segments[0].file
    monkeypatch.setattr(MappedFile, "warm", lambda _, *place: warmed.append(place))
    for status in (UNITS_COLD, RECORD_COLD):
        cold = SimpleNamespace(passed=status, decided=0, cold_file=file, cold_position=47, cold_length=status)

        def cold_at_first(*asked: Any, cold: Any = cold) -> Any:
            return cold if asked[-1] else kernel_pull(*asked)

        monkeypatch.setattr("storage.query.get_message.pull", cold_at_first)
        step = begin(get_message_lookup(queues, "T", 0, 0, 32, PLENTY))
        assert isinstance(step, Unfinished)
        assert str(step.wait) == f"{file.path.name} is cold at 47"
        assert len(step.finish().records) == 3
    assert warmed == [(47, UNITS_COLD), (47, RECORD_COLD)]


def test_units_of_a_file_that_was_cut_since_it_was_listed_are_not_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_store(tmp_path, 3)
    place = ConsumeQueue.place

    def beyond(queue: ConsumeQueue, queue_offset: int, maximum: int) -> Any:
        found = place(queue, queue_offset, maximum)
        return None if found is None else (*found[:2], FILE_SIZE)

    monkeypatch.setattr(ConsumeQueue, "place", beyond)
    with pytest.raises(TruncatedFile):
        pull(tmp_path)


def test_an_expression_of_very_many_steps_is_left_to_a_thread_that_may_wait(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path)
    for _ in range(40):
        writer.append("T", b"")
    writer.flush()
    queues, _ = open_queues(tmp_path)
    long = ExpressionFilter(parse(" OR ".join(f"a = {number}" for number in range(7000))))
    assert "a long expression" in str(wait_of(get_message_lookup(queues, "T", 0, 0, 32, PLENTY, long)))
    short = ExpressionFilter(parse("a = 1"))
    assert at_once(get_message_lookup(queues, "T", 0, 0, 32, PLENTY, short)).records == []
    assert get_message(queues, "T", 0, 0, 32, PLENTY, long).records == []


def test_a_long_pull_alone_is_left_to_a_thread_that_may_wait(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, queue_file_size=200_000)
    for _ in range(5000):
        writer.append("T", b"")
    writer.flush()
    queues, _ = open_queues(tmp_path)
    queue = queues.queue("T", 0)
    assert queue is not None
    assert queue.max_offset == 5000
    assert len(at_once(get_message_lookup(queues, "T", 0, 0, 32, PLENTY)).records) == 32
    assert "long scan" in str(wait_of(get_message_lookup(queues, "T", 0, 0, 5000, PLENTY)))
