"""What every message of the benchmark's store is, computed from a few parameters.

The store itself is half a gigabyte; what a load generator has to know about it (which key belongs to which message,
where each message starts) is arithmetic on the message's number and on a few seeded NumPy arrays. So requests are
made, and answers are foretold, without reading the store.

Each message has a unique key, two business keys, a tag and two properties to filter by:

* the order id ``O##########``: one message each;
* the second key: a customer ``C##########`` out of ``count / 4`` (four messages on average); or, for ``hot_keys *
  hot_hits`` messages spread over the log, a hot key ``H##########`` with exactly ``hot_hits`` messages; or, for the
  very first messages, an unlucky key ``U##########``, whose slot in the index is the slot of the first tag's chain;
* one of ``tags`` tags at random, so that each tag's chain is ``count / tags`` entries long;
* ``amount``, 00 to 99, and ``region``, one of ``regions``, both at random.

All texts have fixed widths, so a record's size depends on nothing but its body's.
"""

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]

TOPIC = "BenchTopic"
QUEUES = 8
STORE_HOST = bytes([127, 0, 0, 1]) + (10911).to_bytes(4, "big")
BORN_HOST = bytes([127, 0, 0, 1]) + (49152).to_bytes(4, "big")
FIRST_STORE_TIMESTAMP = 1_768_471_200_000  # 2026-01-15T10:00:00Z; one message a millisecond from here
KEY_WIDTH = 11
AMOUNTS = 100
MANIFEST = "manifest.json"

# Fixed part of a V1 record with IPv4 hosts: everything but body, topic and properties (store-format §2.2).
RECORD_OVERHEAD = 91
BLANK_SIZE = 8
_ORDER_FACTOR = 6_364_136_223  # coprime to 10**10: order ids are a permutation, not a count, as in real life
_DIGITS = 10


@dataclass(frozen=True)
class StoreParameters:
    """What decides a store's bytes. Sizes in bytes, counts in messages, slots or entries."""

    count: int = 1_000_000
    seed: int = 1
    tags: int = 7
    regions: int = 4
    hot_keys: int = 64
    hot_hits: int = 32
    unlucky_keys: int = 4
    body_minimum: int = 200
    body_maximum: int = 300
    segment_size: int = 1 << 30
    index_slots: int = 5_000_000
    index_entries: int = 20_000_000
    topics: int = 1

    def __post_init__(self) -> None:
        """Raise ValueError unless each unlucky key and each message of a hot key has a message of its own."""
        needed = self.unlucky_keys + self.hot_keys * self.hot_hits
        if self.count < needed:
            raise ValueError(f"a store of {self.count:,} messages is too small: its keys need at least {needed:,}")

    @property
    def directory_name(self) -> str:
        """A folder name that differs for parameters that differ."""
        values = asdict(self)
        topics = values.pop("topics")
        return "store-" + "-".join(map(str, values.values())) + (f"-{topics}-topics" if topics > 1 else "")

    @property
    def queues(self) -> list[tuple[str, int]]:
        """Topics and queue ids; of n queues, message m is number m // n of queue m % n. Of many topics each has one."""
        if self.topics == 1:
            return [(TOPIC, queue_id) for queue_id in range(QUEUES)]
        return [(f"Bench{number:05d}", 0) for number in range(self.topics)]


class StorePlan:
    """Every message of one store, by number. Cheap to make: 0.1 s for a million messages, unlucky keys aside."""

    def __init__(self, parameters: StoreParameters, unlucky_keys: tuple[str, ...] | None = None) -> None:
        """``unlucky_keys`` are known once a store is made (its manifest holds them); without, they are searched."""
        self.parameters = parameters
        random = np.random.default_rng(parameters.seed)
        count = parameters.count
        self.tag_numbers = random.integers(0, parameters.tags, count)
        self.body_sizes = random.integers(parameters.body_minimum, parameters.body_maximum + 1, count)
        self.customers = random.integers(0, max(count // 4, 1), count)
        self.hot_numbers = np.full(count, -1, dtype=np.int64)
        spread = random.permutation(np.arange(parameters.unlucky_keys, count))
        hot_messages = spread[: parameters.hot_keys * parameters.hot_hits]
        self.hot_numbers[hot_messages] = np.repeat(np.arange(parameters.hot_keys), parameters.hot_hits)
        self.amounts = random.integers(0, AMOUNTS, count)
        self.region_numbers = random.integers(0, parameters.regions, count)
        self.sizes = self.body_sizes + (RECORD_OVERHEAD + len(TOPIC) + len(self.properties_of(0, "U" * KEY_WIDTH)))
        self.unlucky_keys = unlucky_keys or find_unlucky_keys(parameters)

    @classmethod
    def load(cls, directory: Path) -> "StorePlan":
        """The plan of a store that was made, from its manifest."""
        manifest = json.loads((directory / MANIFEST).read_text())
        return cls(StoreParameters(**manifest["parameters"]), tuple(manifest["unlucky_keys"]))

    def manifest(self) -> dict[str, object]:
        """What ``load`` needs, and the first messages spelled out for people and other programs."""
        return {
            "parameters": asdict(self.parameters),
            "topic": TOPIC,
            "end_of_log": self.end_of_log,
            "unlucky_keys": list(self.unlucky_keys),
            "hot_keys": [hot_key(number) for number in range(self.parameters.hot_keys)],
            "first_messages": [self.describe(number) for number in range(min(100, self.parameters.count))],
        }

    def describe(self, number: int) -> dict[str, object]:
        """One message's identifiers."""
        physical_offset = int(self.physical_offsets[number])
        return {
            "physical_offset": physical_offset,
            "offset_message_id": (STORE_HOST + physical_offset.to_bytes(8, "big")).hex().upper(),
            "size": int(self.sizes[number]),
            "unique_key": unique_key(number),
            "keys": [order_key(number), self.second_key(number)],
            "tag": self.tag(number),
            "amount": self.amount(number),
            "region": self.region(number),
        }

    @cached_property
    def physical_offsets(self) -> Numbers:
        """Where each record starts: records never straddle a segment, and leave 8 bytes or more for its BLANK."""
        offsets = np.empty(self.parameters.count, dtype=np.int64)
        ends = np.cumsum(self.sizes)
        first, base_offset, before = 0, 0, 0
        while first < len(offsets):
            behind = int(np.searchsorted(ends, before + self.parameters.segment_size - BLANK_SIZE, side="right"))
            offsets[first:behind] = ends[first:behind] - self.sizes[first:behind] - before + base_offset
            first, base_offset, before = behind, base_offset + self.parameters.segment_size, int(ends[behind - 1])
        return offsets

    @property
    def end_of_log(self) -> int:
        """Physical offset behind the last record."""
        return int(self.physical_offsets[-1] + self.sizes[-1])

    def tag(self, number: int) -> str:
        """The message's TAGS property."""
        return tag_text(self.tag_numbers[number], self.parameters.tags)

    def amount(self, number: int) -> str:
        """The message's property of that name."""
        return f"{self.amounts[number]:02d}"

    def region(self, number: int) -> str:
        """The message's property of that name; there are ten at most."""
        return f"r{self.region_numbers[number]}"

    def second_key(self, number: int) -> str:
        """The message's second business key: unlucky, hot or a customer's."""
        if number < len(self.unlucky_keys):
            return self.unlucky_keys[number]
        hot_number = self.hot_numbers[number]
        return hot_key(hot_number) if hot_number >= 0 else customer_key(self.customers[number])

    def properties(self, number: int) -> bytes:
        """The property block, in the order that a broker 5.5.0 stored one in."""
        return self.properties_of(number, self.second_key(number))

    def properties_of(self, number: int, second_key: str) -> bytes:
        """The property block of a message with the given second key."""
        return (
            f"MSG_REGION\x01DefaultRegion\x02UNIQ_KEY\x01{unique_key(number)}\x02CLUSTER\x01DefaultCluster\x02"
            f"TAGS\x01{self.tag(number)}\x02KEYS\x01{order_key(number)} {second_key}\x02"
            f"WAIT\x01true\x02TRACE_ON\x01true\x02amount\x01{self.amount(number)}\x02"
            f"region\x01{self.region(number)}\x02"
        ).encode()

    @cached_property
    def second_key_sizes(self) -> Numbers:
        """Bytes of all records that share message i's second key."""
        groups = np.where(self.hot_numbers >= 0, len(self.customers) + self.hot_numbers, self.customers)
        unlucky = len(self.unlucky_keys)
        groups[:unlucky] = groups.max() + 1 + np.arange(unlucky)
        sums: Numbers = np.bincount(groups, self.sizes).astype(np.int64)
        return sums[groups]


def unique_key(number: int) -> str:
    """As Java clients make them: address, pid, class loader hash, milliseconds in the month, counter."""
    milliseconds = FIRST_STORE_TIMESTAMP - 1_767_225_600_000 + number
    return f"0A00002A1F9018B4AAC2{milliseconds:08X}{number & 0xFFFF:04X}"


def order_key(number: int) -> str:
    """The key that only this message has."""
    return f"O{number * _ORDER_FACTOR % 10**_DIGITS:010d}"


def customer_key(customer: int) -> str:
    """A key that about four messages share."""
    return f"C{customer:010d}"


def tag_text(number: int, tags: int) -> str:
    """One of so many tags; all have one width."""
    return f"Tag{number:0{len(str(tags - 1))}}"


def hot_key(number: int) -> str:
    """A key that exactly ``hot_hits`` messages share."""
    return f"H{number:010d}"


def find_unlucky_keys(parameters: StoreParameters) -> tuple[str, ...]:
    """Keys whose slot is the first tag's slot, by trying numbers: one in ``index_slots`` of them fits."""
    wanted = (
        int(_index_hashes(_java_hashes(f"{TOPIC}#T#{tag_text(0, parameters.tags)}", 0))[0]) % parameters.index_slots
    )
    found: dict[int, str] = {}  # by hash: two of equal hash would be found by each other's queries
    start, step = 0, min(1_000_000, 16 * parameters.index_slots)
    while len(found) < parameters.unlucky_keys:
        hashes = _index_hashes(_java_hashes(f"{TOPIC}#U", start, step))
        for hit in np.flatnonzero(hashes % parameters.index_slots == wanted).tolist():
            found.setdefault(int(hashes[hit]), f"U{start + hit:010d}")
        start += step
    return tuple(found.values())[: parameters.unlucky_keys]


def _java_hashes(prefix: str, start: int, count: int = 0) -> npt.NDArray[np.uint32]:
    """``String.hashCode`` of a prefix followed by each ten-digit number in turn (of the prefix alone if count is 0)."""
    state = 0
    for character in prefix.encode():
        state = (31 * state + character) & 0xFFFFFFFF
    hashes = np.full(max(count, 1), state, dtype=np.uint32)
    numbers = np.arange(start, start + count, dtype=np.int64)
    for power in range(_DIGITS - 1, -1, -1) if count else ():
        hashes = hashes * np.uint32(31) + (numbers // 10**power % 10 + ord("0")).astype(np.uint32)
    return hashes


def _index_hashes(hashes: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    """The index's fold: absolute value, and 0 for the smallest int, which has none (store-format §3.3)."""
    folded = np.abs(hashes.view(np.int32).astype(np.int64))
    folded[folded == 1 << 31] = 0
    return folded
