"""Scans as a bulk job runs them, what they gather in the oracle's form, and records that make dispatch difficult."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from dispatch_oracle import Dispatched, QueueUnits
from kernel_memory import Bytes, segment_at
from oracles import DEFAULT_DELAY_LEVELS, SCHEDULE_TOPIC, delay_milliseconds
from storage.build.dispatch_scan import BATCH, LIGHT, DispatchBlock, DispatchOptions, DispatchScan, Reason
from storage.kernels.records import BAD_NUMBER
from store_files import property_bytes
from strategies import property_blocks

DELAYS = tuple(delay_milliseconds(level) for level in range(1, len(DEFAULT_DELAY_LEVELS.split(" ")) + 1))
UNIT_BYTES = {BATCH: 46}


class Ended(NamedTuple):
    position: int
    reason: int
    code: int


@dataclass
class Scanned:
    """The blocks of a scan, where it ended and why, and the physical offsets of records that it passed over."""

    blocks: list[DispatchBlock]
    step: Ended
    passed_over: list[int]

    @property
    def made(self) -> Dispatched:
        return gather(self.blocks)


def make_scan(**options):
    """A scan as of broker 5.5 with all that there is, but for what `options` say."""
    defaults = {
        "tags": True, "checksums": False, "delays": DELAYS, "lmq": True, "batch_topics": (), "ext": True,
    }  # fmt: skip
    return DispatchScan(DispatchOptions(**{**defaults, **options}))


def scan_bytes(data, base=0, *, window=None, limit=None, boundary=None, **options):
    """Scan `data`, of which a run is shown `window` bytes, or as often as it asks for more twice as many.

    The next segment starts at `boundary`, right behind the data by default. Records with a bad number are passed over;
    the scan ends at anything else that is no record.
    """
    scan, blocks, passed_over = make_scan(**options), [], []
    limit = len(data) if limit is None else limit
    boundary = base + len(data) if boundary is None else boundary
    start, shown = 0, window or len(data)
    while True:
        held = Bytes(data[start : start + shown])
        step = scan.run(held.region, 0, held.length, base + start, boundary, min(limit - start, held.length))
        start += step.position
        if step.reason == Reason.FULL:
            blocks.append(scan.take())
            assert blocks[-1].records
        elif step.reason == Reason.DAMAGE and step.code == BAD_NUMBER:
            passed_over.append(base + start)
            start += int.from_bytes(data[start : start + 4], "big")
        elif step.reason == Reason.NEED_MORE and start + held.length - step.position < len(data):
            shown = shown if step.position else 2 * shown
        elif step.reason != Reason.LIMIT or start >= limit:
            break
        else:
            shown = window or len(data)
    blocks.append(scan.take())
    return Scanned(blocks, Ended(start, step.reason, step.code), passed_over)


def scan_store(directories, **options):
    paths = sorted((path for directory in directories for path in directory.iterdir()), key=lambda path: path.name)
    return [scan_bytes(path.read_bytes(), int(path.name), **options) for path in paths]


def gather(blocks):
    """What some blocks hold, in the oracle's form; it is checked that their columns fit together."""
    made, end = Dispatched(), -1
    for block in blocks:
        assert end <= block.first_offset <= block.end_offset
        assert block.record_entries.all()
        assert int(block.record_entries.sum(dtype=np.int64)) == block.hashes.size
        offsets = np.repeat(block.record_offsets.astype(np.int64) + block.first_offset, block.record_entries)
        stamps = np.repeat(block.record_timestamps, block.record_entries)
        made.entries += zip(block.hashes.tolist(), offsets.tolist(), stamps.tolist(), strict=True)
        _gather_units(block, made)
        end = block.end_offset
    return made


def _gather_units(block: DispatchBlock, made: Dispatched) -> None:
    position = number = unit_number = 0
    stamps = block.unit_timestamps.tolist()
    for queue_number, kind, first, count, start in block.runs.tolist():
        assert (start, count > 0) == (position, True)
        assert queue_number in (number, number + 1)
        topic, queue_id = block.queues[queue_number]
        queue = made.queues.setdefault((topic, queue_id, kind == LIGHT), QueueUnits(kind))
        size = UNIT_BYTES.get(kind, 20)
        units = bytes(block.units[start : start + count * size])
        parts = [units[i : i + size] for i in range(0, len(units), size)]
        queue.units += parts
        in_batches = [int.from_bytes(part[28:36], "big", signed=True) for part in parts]
        queue.offsets += in_batches if kind == BATCH else range(first, first + count)
        assert kind != BATCH or in_batches[0] == first
        queue.timestamps += stamps[unit_number : unit_number + count]
        position, number, unit_number = start + len(units), queue_number, unit_number + count
    assert position == block.units.size
    assert len(stamps) in (0, unit_number)


def segment(changes, base=0):
    return segment_at(base, *changes)


BATCH_TOPIC = b"BatchTopic"
TOPICS = (b"TopicTest", BATCH_TOPIC, SCHEDULE_TOPIC.encode(), b"%RETRY%group", b"rmq_sys_x")
TOPICS += ("主题".encode(), b"\xed\xa0\x80#")

numbers = st.one_of(
    st.integers(-3, 25).map(str),
    st.sampled_from(["+5", "-0", "007", "-", "+", "1x", "４", "32767", "32768", "-32768", "-32769"]),
    st.sampled_from([f"{sign}{2**bits + more}" for bits in (31, 63) for more in (-1, 0, 1) for sign in ("", "-", "+")]),
    st.integers(0, 10**40).map(str),
)
light_names = st.lists(st.sampled_from(["%LMQ%a", "%LMQ%b", "plain", "a/b", "", "%LMQ", "%LMQ%灯"]), max_size=4)
light_offsets = st.lists(st.one_of(st.integers(0, 9).map(str), numbers, st.just("")), max_size=4)
named_values = st.one_of(
    st.tuples(
        st.just("KEYS"), st.sampled_from(["a", "a a b", " ", "  k  ", "polygenelubricants", "ключ 🔑", "k" * 30])
    ),
    st.tuples(st.just("UNIQ_KEY"), st.sampled_from(["7F0000016C8830946E0968720E650000", "a", "x y"])),
    st.tuples(st.just("TAGS"), st.sampled_from(["TagA", "polygenelubricants", "标签", ""])),
    st.tuples(st.sampled_from(["DELAY", "INNER_NUM", "INNER_BASE"]), numbers),
    st.tuples(st.just("INNER_MULTI_DISPATCH"), light_names.map(",".join) | st.just(" ")),
    st.tuples(st.just("INNER_MULTI_QUEUE_OFFSET"), light_offsets.map(",".join) | st.just(" ")),
    st.tuples(
        st.sampled_from(["DELAX", "TAGX", "INNER_NUX", "INNER_BASX", "UNIQ_KEX", "INNER_MULTI_DISPATCX"]), numbers
    ),
)
named_blocks = st.lists(named_values, max_size=7).map(
    lambda pairs: b"".join(property_bytes({name: value}) for name, value in pairs)
)


@st.composite
def light_blocks(draw: st.DrawFn) -> bytes:
    names = draw(light_names)
    offsets = draw(st.lists(light_offsets.map(lambda texts: texts[0] if texts else "3"), min_size=len(names)))
    lists = {"INNER_MULTI_DISPATCH": ",".join(names), "INNER_MULTI_QUEUE_OFFSET": ",".join(offsets[: len(names)])}
    return property_bytes({**lists, "TAGS": "TagA"})


@st.composite
def record_changes(draw):
    """Changes for `record_at`: any hosts, both record versions, all kinds of transactions, properties of all kinds."""
    return {
        "topic_bytes": draw(st.sampled_from(TOPICS)),
        "properties_bytes": draw(st.one_of(named_blocks, light_blocks(), property_blocks)),
        "queue_id": draw(st.integers(0, 2)),
        "queue_offset": draw(st.integers(0, 3)),
        "sys_flag": draw(st.sampled_from([0, 0, 4, 8, 12])) | draw(st.sampled_from([0, 0x10, 0x20, 0x30])),
        "store_timestamp": draw(st.integers(-(2**62), 2**62) | st.just(1_700_000_000_000)),
        "magic": draw(st.sampled_from([0xDAA320A7, 0xDAA320AB])),
        "body": draw(st.binary(max_size=10)),
    }
