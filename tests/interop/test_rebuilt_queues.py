"""The official broker's own store classes on stores whose queues were rebuilt from a damaged or expired log."""

import shutil

import pytest

from interop.recovery_oracle import Sizes
from job_runs import Rebuilt
from queue_runs import unit
from spark_jobs.run.report import Damage
from store_files import PRE_BLANK, write_file
from store_writer import StoreWriter

pytestmark = pytest.mark.interop

SEGMENT = 1 << 20
QUEUE_FILE = 20 * 1000
SIZES = Sizes(SEGMENT, QUEUE_FILE, slots=97)
LOST = {"Whole": (0, 0), "Few": (40, 3), "Many": (40, 300), "More": (40, 1500), "Front": (0, 20), "Tail": (60, 40)}
"""Of each topic's messages: the first that is lost, and how many."""

BROKERS_WAY = "BrokersWay"


def spoil(writer, written) -> list[Damage]:
    for each in written:
        writer.overwrite(each.physical_offset + 4, b"\xff" * 4)
    return [Damage("log", each.physical_offset, each.size, "a record", "none") for each in written]


def put_into_place(rebuilt, store) -> None:
    shutil.rmtree(store / "consumequeue")
    shutil.copytree(rebuilt.work.staged / "consumequeue", store / "consumequeue")


def damaged(root) -> StoreWriter:
    """Three segments: losses in the first, the second missing, and the third for the broker to recover."""
    writer = StoreWriter(root, segment_size=SEGMENT, queue_file_size=QUEUE_FILE)
    damages: list[Damage] = []
    for topic, (first, count) in LOST.items():
        written = [writer.append(topic, b"%d" % number) for number in range(first + count + 60 * (topic != "Tail"))]
        damages += spoil(writer, written[first : first + count])
    for number in range(50):
        writer.append("Hole", b"%d" % number)
        writer.append(BROKERS_WAY, b"%d" % number, queue_offset=number if number < 20 else number + 10)
    writer.roll()
    for number in range(900):
        writer.append("Hole", b"%d" % number)
    writer.roll()
    for number in range(50):
        writer.append("Hole", b"%d" % number)
    writer.close()
    missing = writer.log.segments.pop(SEGMENT)
    missing.unlink()
    writer.written = [each for each in writer.written if each.physical_offset // SEGMENT != 1]
    damages.append(Damage(str(missing.parent), SEGMENT, SEGMENT, "a segment", "no file"))
    put_into_place(Rebuilt(root, root.parent / "work", damages=tuple(damages)), root)
    own = [unit(each.physical_offset, each.size, 0) for each in writer.written if each.topic == BROKERS_WAY]
    content = b"".join([*own[:20], *[PRE_BLANK] * 10, *own[20:]])
    write_file(root / "consumequeue" / BROKERS_WAY / "0" / f"{0:020d}", QUEUE_FILE, {0: content})
    return writer


@pytest.mark.untraced
def test_every_message_that_is_left_is_delivered_in_order_and_counted_on_from(tmp_path, oracle) -> None:
    writer = damaged(tmp_path / "store")
    assert oracle.load(writer.root, SIZES).is_loaded
    consumed = oracle.consume()
    for topic in [*LOST, "Hole"]:
        queue, left = consumed[topic, 0], [record for record in writer.records if record.topic == topic]
        assert len(left) >= 60
        assert list(dict.fromkeys(queue.places)) == [record.physical_offset for record in left]
        assert (queue.minimum, queue.maximum) == (0, writer.next_queue_offset[topic, 0])
    # Empty places as a broker makes them would cost messages.
    expected = [record.physical_offset for record in writer.records if record.topic == BROKERS_WAY]
    assert list(consumed[BROKERS_WAY, 0].places) == expected[:20]


@pytest.mark.untraced
def test_on_an_expired_log_minimum_and_numbers_are_right(tmp_path, oracle) -> None:
    """Filler before the first message, a queue that the log has nothing of, and stale units behind its end."""
    store = tmp_path / "store"
    writer = StoreWriter(store, segment_size=SEGMENT, queue_file_size=QUEUE_FILE)
    for _ in range(1200):
        writer.append("Plain")
    for _ in range(30):
        writer.append("Silent")
    writer.roll()
    for _ in range(50):
        writer.append("Plain")
    writer.close()
    writer.log.segments[0].unlink()
    stale = store / "consumequeue" / "Silent" / "0" / f"{0:020d}"
    write_file(stale, QUEUE_FILE, {30 * 20: unit(SEGMENT + 91, 100, 0) * 3})
    put_into_place(Rebuilt(store, tmp_path / "work"), store)
    assert oracle.load(store, SIZES).is_loaded
    consumed = oracle.consume()
    plain, silent = consumed["Plain", 0], consumed["Silent", 0]
    assert ((plain.minimum, plain.maximum), (silent.minimum, silent.maximum)) == ((1200, 1250), (30, 30))
    assert list(plain.places) == [each.physical_offset for each in writer.written if each.physical_offset >= SEGMENT]
