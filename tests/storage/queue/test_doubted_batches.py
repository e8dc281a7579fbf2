"""Damaged units of batches do not count, and what the log has is read in their place."""

import itertools
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from damaged_units import QueueImage, expire
from doctoring import put
from oracles import packed
from queue_stores import batch_queue
from storage.queue.batch_consume_queue import UNIT_DTYPE, BatchConsumeQueue
from storage.queue.unit_reader import entries_between
from store_writer import StoreWriter, Written

UNIT = 46
FIELDS = {"physical_offset": (0, 8), "size": (8, 4), "base_offset": (28, 8), "batch_size": (36, 2)}
VALUES = {"0": 0, "-1": -1, "large": 2**14, "1 more": None}


@pytest.fixture
def made(tmp_path: Path) -> tuple[StoreWriter, list[Written]]:
    writer = StoreWriter(tmp_path, segment_size=4096, batch_queue_file_size=UNIT * 5)
    written = []
    for number in range(14):
        writer.append("other", b"between")
        batch = [(b"%d.%d" % (number, n), {"TAGS": "t"}) for n in range(1 + number % 3)]
        written.append(writer.append_inner_batch("T", batch))
    writer.close()
    return writer, written


def places(queue: BatchConsumeQueue) -> list[tuple[int, int, int]]:
    """Base offset, batch size and physical offset of every batch of the queue, as a consumer walks over them."""
    found = entries_between(queue, queue.min_offset, queue.max_offset)
    return [(each.queue_offset, each.batch_size, each.physical_offset) for each in found]


@pytest.mark.parametrize("number", [4, 13])
@pytest.mark.parametrize("field", FIELDS)
def test_any_field_of_any_unit(made: tuple[StoreWriter, list[Written]], field: str, number: int) -> None:
    writer, written = made
    expected = places(batch_queue(writer.root))
    assert [physical for _, _, physical in expected] == [each.physical_offset for each in written]
    position, size = FIELDS[field]
    path = writer.root / "batchconsumequeue" / "T" / "0" / f"{number // 5 * 5 * UNIT:020d}"
    at = number % 5 * UNIT + position
    sound = path.read_bytes()[at : at + size]
    for value, told in VALUES.items():
        put(path, at, packed(int.from_bytes(sound, "big", signed=True) + 1 if told is None else told, size))
        assert places(batch_queue(writer.root)) == expected, value


def test_a_batch_that_is_lost_is_stepped_over(made: tuple[StoreWriter, list[Written]]) -> None:
    writer, written = made
    expected = places(batch_queue(writer.root))
    writer.overwrite(written[7].physical_offset, bytes(written[7].size))
    put(writer.root / "batchconsumequeue" / "T" / "0" / f"{5 * UNIT:020d}", 2 * UNIT, bytes(UNIT))
    found = places(batch_queue(writer.root))
    assert [each for each in found if each[2] >= 0] == expected[:7] + expected[8:]


def test_a_unit_that_is_a_copy_of_another_one_is_read_by_nobody(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, batch_queue_file_size=UNIT * 12)
    for number in range(8):
        writer.append_inner_batch("T", [(b"%d.%d" % (number, n), {}) for n in range(3)])
    writer.close()
    expected = places(batch_queue(tmp_path))
    path = tmp_path / "batchconsumequeue" / "T" / "0" / f"{0:020d}"
    for number, other in itertools.product((0, 4, 7), range(8)):
        sound = path.read_bytes()
        put(path, number * UNIT, sound[other * UNIT : (other + 1) * UNIT])
        queue = batch_queue(tmp_path)
        entries = [(each.queue_offset, each.batch_size, each.physical_offset) for each in queue.entries(0, 100)]
        assert (number, other, places(queue), entries) == (number, other, expected, expected)
        path.write_bytes(sound)


@pytest.mark.parametrize("seed", range(3))
def test_damaged_units_in_front_of_a_queue_whose_first_batches_have_expired(seed: int, tmp_path: Path) -> None:
    """They say, damaged as they are, that their batches lie below the log, or anything: the log knows better."""
    writer = StoreWriter(tmp_path, segment_size=2048, batch_queue_file_size=UNIT * 20)
    written = [writer.append_inner_batch("T", [(b"a", {}), (b"b", {})]) for _ in range(50)]
    writer.close()
    for path in sorted((tmp_path / "commitlog").iterdir())[:2]:
        path.unlink()
    first, front, *_ = sorted((tmp_path / "batchconsumequeue" / "T" / "0").iterdir())
    first.unlink()
    expected = [each.physical_offset for each in written if each.physical_offset >= 4096]
    assert [physical for _, _, physical in places(batch_queue(tmp_path))] == expected
    data, flips = bytearray(front.read_bytes()), random.Random(seed)
    for _ in range(flips.randrange(1, 60)):
        data[flips.randrange(5 * UNIT)] ^= 1 << flips.randrange(8)
    front.write_bytes(data)
    queue = batch_queue(tmp_path)
    assert (queue.min_offset, queue.max_offset) == (2 * (len(written) - len(expected)), 2 * len(written))
    assert [physical for _, _, physical in places(queue)] == expected


DAMAGES: dict[str, Callable[[random.Random, bytes], bytes]] = {
    "zeros": lambda chance, unit: bytes(UNIT),
    "ones": lambda chance, unit: b"\xff" * UNIT,
    "noise": lambda chance, unit: chance.randbytes(UNIT),
    "place": lambda chance, unit: packed(1 << chance.randrange(40), 8) + unit[8:],
    "size": lambda chance, unit: unit[:8] + packed(-1, 4) + unit[12:],
    "base offset": lambda chance, unit: unit[:28] + packed(chance.randrange(1 << 40), 8) + unit[36:],
    "batch size": lambda chance, unit: unit[:36] + packed(chance.randrange(-5, 30_000), 2) + unit[38:],
}


def judge_damaged_batches(root: Path, seed: int) -> None:
    """A store whose units of batches are damaged at random: bounds and batches must be those of the sound one."""
    chance = random.Random(seed)
    writer = StoreWriter(root, segment_size=4096, batch_queue_file_size=UNIT * chance.choice([5, 40, 300]))
    writer.append("other", b"the first message of all")
    written = []
    for number in range(chance.choice([3, 40, 250])):
        if chance.random() < 0.3:
            writer.append("other", b"between")
        written.append(writer.append_inner_batch("T", [(b"%d" % number, {})] * chance.randrange(1, 4)))
    writer.flush()
    log_minimum = expire(root, chance.choice([0, 0, 1, 2, 8]))
    live = [number for number, each in enumerate(written) if each.physical_offset >= log_minimum]
    if not live:
        return
    image, count, done = QueueImage(root / "batchconsumequeue" / "T" / "0", UNIT), len(written), []
    for _ in range(chance.randrange(1, 5)):
        kind = chance.choice(sorted(DAMAGES))
        near = chance.choice([chance.randrange(count), live[0] - chance.randrange(-2, 10), count - chance.randrange(9)])
        start = min(max(near, 0), count - 1)
        length = min(chance.choice([1, 1, 3, 40, 100]), count - 1 - start)
        for number in range(start, start + length):
            image.put(number, DAMAGES[kind](chance, image.unit(number)))
        done.append((start, length, kind))
    if chance.random() < 0.4:
        image.put(count - 1, DAMAGES["size"](chance, image.unit(count - 1)))
    queue = batch_queue(root)
    end = writer.next_queue_offset["T", 0]
    assert (queue.min_offset, queue.max_offset) == (written[live[0]].queue_offset, end), (seed, done)
    for number in live:
        each = written[number]
        assert queue.message_in_log(each.queue_offset) == each.physical_offset, (seed, done, number)


@pytest.mark.parametrize("seed", range(10))
def test_damage_changes_neither_bound_and_hides_no_batch(seed: int, tmp_path: Path) -> None:
    judge_damaged_batches(tmp_path, seed)


@pytest.mark.soak
@pytest.mark.parametrize("hundred", range(10))
def test_damage_changes_neither_bound_of_many_stores(hundred: int, tmp_path: Path) -> None:
    for seed in range(1000 + 100 * hundred, 1100 + 100 * hundred):
        judge_damaged_batches(tmp_path / str(seed), seed)


def test_a_queue_longer_than_any_number_is_mended(tmp_path: Path) -> None:
    """12,000 batches, of which 7,000 lost their units."""
    count = 12_000
    writer = StoreWriter(tmp_path)
    first = writer.append_inner_batch("T", [(b"body", {})])
    writer.flush()
    log = np.tile(np.frombuffer(first.record, np.uint8), (count, 1))
    numbers = np.arange(count, dtype=">i8")
    log[:, 20:28] = numbers.view(np.uint8).reshape(count, 8)
    log[:, 28:36] = (numbers * first.size).astype(">i8").view(np.uint8).reshape(count, 8)
    name = first.record.index(b"INNER_BASE\x01")
    log[:, name : name + 10] = np.frombuffer(b"INNER_BOSE", np.uint8)  # so that the queue offset counts, as in 5.5.0
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(log.tobytes() + bytes(4096))
    units = np.zeros(count, UNIT_DTYPE)
    units["physical_offset"], units["size"] = numbers * first.size, first.size
    units["base_offset"], units["batch_size"], units["store_timestamp"] = numbers, 1, first.store_timestamp
    units[3_000:10_000] = np.zeros((), UNIT_DTYPE)
    (path,) = (tmp_path / "batchconsumequeue" / "T" / "0").iterdir()
    path.write_bytes(units.tobytes() + bytes(4600))
    queue = batch_queue(tmp_path)
    assert (queue.min_offset, queue.max_offset) == (0, count)
    for number in (0, 2_999, 3_000, 7_000, 9_999, 10_000, count - 1):
        entry = queue.entry_at(number)
        assert entry is not None
        assert (entry.queue_offset, entry.physical_offset) == (number, number * first.size)
