"""A record that a few pages show to belong to the log is also found in the log when it is opened as a whole."""

import os
import random

import pytest

from oracles import packed
from storage.layout.store_layout import recognise_store
from storage.log.commit_log import CommitLog
from storage.query import sure_record as module
from storage.query.sure_record import sure_record_at
from storage.store.message_store import MessageStore
from store_writer import START_TIMESTAMP, StoreWriter

SEGMENT = 16384
LATER = START_TIMESTAMP + 60_000


@pytest.fixture(autouse=True)
def short_walks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WALKED_BYTES", 600)


@pytest.fixture
def looked_over(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    lengths: list[int] = []

    def walk(region, position, stop, *rest):
        lengths.append(stop - position)
        return walk_records(region, position, stop, *rest)

    walk_records = module.walk_records
    monkeypatch.setattr(module, "walk_records", walk)
    return lengths


def make(root, count=50, **options):
    writer = StoreWriter(root, segment_size=SEGMENT, **options)
    return writer, [append(writer, n) for n in range(count)]


def append(writer, number, *, since=0, size=90):
    body = b"%d" % number * (size // 2)
    return writer.append("T", body, keys=f"k{number}", unique_key=f"u{number}", store_timestamp=START_TIMESTAMP + since)


def sure(root, each):
    record = sure_record_at(recognise_store(root), each.physical_offset)
    return None if record is None else bytes(record)


def are_sure(root, written):
    assert written
    return all(sure(root, each) == each.record for each in written)


def none_is_sure(root, written):
    assert written
    return all(sure(root, each) is None for each in written)


def far_from(base_offset, written):
    """What no walk from the start of its segment reaches."""
    return [each for each in written if each.physical_offset > base_offset + 600]


def cut_at(writer, old, number) -> None:
    """Let the log and the queue end before a record, as a broker's recovery does; nothing is overwritten."""
    writer.log.end = old[number].physical_offset
    for queue in writer.queues.values():
        for start, content in queue.files.items():
            del content[max(old[number].queue_offset * 20 - start, 0) :]
        queue.max_physical_offset = old[number - 1].physical_offset
    writer.next_queue_offset["T", 0] = old[number].queue_offset
    writer.written = old[:number]


def test_all_records_are_sure_and_little_is_looked_over(tmp_path, looked_over) -> None:
    writer, written = make(tmp_path, 130)
    writer.close()
    assert writer.log.end > SEGMENT + 5000
    assert are_sure(tmp_path, written)
    assert looked_over
    assert max(looked_over) <= 600


def test_a_checkpoint_that_knows_of_later_messages_or_of_none(tmp_path) -> None:
    writer, written = make(tmp_path)
    writer.close()
    assert are_sure(tmp_path, written)
    later = packed(START_TIMESTAMP + 1001, 8)  # in the log, and in the queues
    for checkpoint in (bytes(7), bytes(4096), later + bytes(40), bytes(8) + later + bytes(32), None):
        (tmp_path / "checkpoint").unlink()
        if checkpoint is not None:
            (tmp_path / "checkpoint").write_bytes(checkpoint)
        assert none_is_sure(tmp_path, far_from(0, written)), checkpoint


def test_what_a_cut_left_over_is_never_sure(tmp_path) -> None:
    writer, old = make(tmp_path)
    cut_at(writer, old, 20)
    new = [append(writer, 1000 + number, since=60_000, size=130) for number in range(5)]
    writer.close()
    stale = [each for each in old if each.physical_offset > writer.log.end]
    assert len(stale) > 10
    assert CommitLog.open(writer.log.directories).end == writer.log.end
    assert none_is_sure(tmp_path, stale)
    for each in old[:20] + new:
        assert sure(tmp_path, each) in (None, each.record)
    new += [append(writer, 1005 + number, since=60_000, size=130) for number in range(25)]
    writer.close()
    assert are_sure(tmp_path, old[:20] + new)  # the index goes on where the log is longer than it was


def test_neither_is_it_before_the_checkpoint_knows_of_anything_new(tmp_path) -> None:
    """The first minute of a broker that cut its log: index and checkpoint are as before, one queue is written."""
    writer, old = make(tmp_path)
    writer.close()
    checkpoint = (tmp_path / "checkpoint").read_bytes()
    cut_at(writer, old, 20)
    append(writer, 1000, since=60_000, size=130)
    writer.flush()
    (tmp_path / "checkpoint").write_bytes(checkpoint)
    os.utime(tmp_path / "abort", (LATER / 1000, LATER / 1000))
    assert none_is_sure(tmp_path, [each for each in old if each.physical_offset > writer.log.end])


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(3, 100))])
def test_whatever_happened_to_a_store_the_opened_one_has_the_same(seed, tmp_path) -> None:
    chance = random.Random(seed)
    writer, written = make(tmp_path, chance.randrange(2, 90))
    everything = list(written)
    if chance.random() < 0.5 and len(written) < 40:
        cut_at(writer, written, chance.randrange(1, len(written)))
        everything += [append(writer, 100 + n, since=60_000, size=chance.randrange(40, 200)) for n in range(9)]
    writer.close()
    for path in (*writer.log.segments.values(), *writer.index_paths()):
        with path.open("r+b") as file:
            for _ in range(chance.choice([0, 0, 1, 3])):
                file.seek(chance.randrange(path.stat().st_size))
                file.write(chance.choice([b"\0", b"\xff"]) * chance.choice([1, 8, 100]))
    opened, layout = MessageStore.open(tmp_path), recognise_store(tmp_path)
    for each in everything:
        record = sure_record_at(layout, each.physical_offset)
        assert record is None or record == opened.record_at(each.physical_offset)
