"""The kernel that finds messages by their queue and queue offsets."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from kernel_memory import record_at
from oracles import java_hash, packed
from queue_stores import unit_bytes
from storage.kernels.messages import ANY_OFFSET, NOT_FOUND, MessageSearch, find_messages
from storage.kernels.region import Region
from storage.queue.unit_struct import UNIT
from store_files import property_bytes

LIGHT = ("INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET")


@dataclass
class Log:
    """Records one behind the other, with room behind them."""

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
def log() -> Log:
    """Messages 7 to 12 of queue 1."""
    log = Log()
    for number in range(6):
        log.add(keys=f"k{number}", sys_flag=(0, 0x30)[number % 2], queue_offset=7 + number)
    return log


@dataclass
class Search:
    """A search for messages of one queue, and what became of it."""

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


def find(data: np.ndarray, start: int, queue_offset: int, **more: object) -> int:
    one = Search(queue_offset, **more)  # type: ignore[arg-type]
    search(data, [one], start)
    return one.found()[0]


def test_a_search_that_grows_begins_with_the_first_message_and_stops_where_it_has_no_room(log: Log) -> None:
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


def test_a_search_that_grows_makes_no_room_for_offsets_far_beyond(log: Log) -> None:
    one = Search(3, 2, grows=True, beyond=6)
    assert search(log.memory(), [one]) == (len(log.data), [0])
    assert not one.kernel.is_full


def test_the_first_of_two_messages_with_one_offset_counts(log: Log) -> None:
    log.add(queue_offset=8)
    assert find(log.memory(), 0, 8) == log.starts[1]
    assert find(log.memory(), log.starts[2], 8) == log.starts[6]


def test_damage_is_stepped_over_and_nothing_behind_the_stop_is_found(log: Log) -> None:
    data = log.memory()
    data[log.starts[1] + 4] = 0
    assert find(data, log.starts[1], ANY_OFFSET) == log.starts[2]
    one = Search(ANY_OFFSET)
    assert search(data, [one], log.starts[1], log.starts[2]) == (log.starts[2], [1])
    data[: data.size] = 0xFF
    assert find(data, 0, ANY_OFFSET) == NOT_FOUND


def test_a_message_that_is_damaged_or_not_committed_is_none(log: Log) -> None:
    data = log.memory()
    data[log.starts[2] + 88] ^= 1
    assert find(data, 0, 9) == NOT_FOUND
    for flags, is_found in ((0x4, False), (0xC, False), (0x8, True)):
        other = Log()
        other.add(sys_flag=flags)
        assert (find(other.memory(), 0, 7) == 0) == is_found


def test_messages_of_light_queues_are_found_by_what_they_say_of_them() -> None:
    log = Log()
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


def test_a_record_that_names_a_light_queue_many_times_is_noted_once_with_its_first_offset() -> None:
    log = Log()
    log.add_light(",".join(["%LMQ%a"] * 200), ",".join(["50"] * 200))
    log.add_light(",".join(["%LMQ%a"] * 200), ",".join(["3", *["4"] * 199]))
    one = Search(0, 10, topic=b"%LMQ%a", queue_id=0)
    search(log.memory(), [one])
    assert one.found() == [*[NOT_FOUND] * 3, log.starts[1], *[NOT_FOUND] * 6]


@pytest.mark.parametrize("tag", ["", "TagA", "a b", "ä", "日本", "𝄞"])
def test_a_unit_is_that_which_a_broker_makes_of_the_record(log: Log, tag: str) -> None:
    log.add(queue_offset=90, properties_bytes=property_bytes({"KEYS": "k", "TAGS": tag}))
    one = Search(90)
    search(log.memory(), [one])
    size = len(log.data) - log.starts[-1]
    assert bytes(one.units) == unit_bytes(log.starts[-1], size, java_hash(tag))
