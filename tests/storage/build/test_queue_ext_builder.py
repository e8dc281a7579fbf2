"""Extensions come out as the broker's own class writes them, with the queue's units pointing there."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import example, given
from hypothesis import strategies as st

from oracles import packed
from queue_runs import QueuedUnit, files_under, put_all, queued, units_in
from storage.build.queue_builder import QueueBuilder, QueueSummary
from storage.build.queue_ext_builder import QueueExtBuilder
from store_files import ConsumeQueueExtFiles, ConsumeQueueFiles

SEGMENT = 1 << 20
LATER = 3 * SEGMENT


def build(root: Path, units: list[QueuedUnit], file_size: int, block: int = 1000, **more: int) -> QueueSummary:
    extension = QueueExtBuilder(root / "ext", file_size)
    builder = QueueBuilder(root / "queue", 100, SEGMENT, extension=extension, **more)
    put_all(builder, units, block, stamped=True)
    return builder.finish()


def by_the_broker(root: Path, units: list[QueuedUnit], file_size: int) -> dict[str, bytes]:
    queue, extension = ConsumeQueueFiles(root / "queue", 100), ConsumeQueueExtFiles(root / "ext", file_size)
    for each in units:
        position, size, code = (int.from_bytes(each.data[a:b], "big") for a, b in ((0, 8), (8, 12), (12, 20)))
        queue.put(position, size, extension.put(code, each.timestamp, b""), each.queue_offset)
    queue.flush()
    extension.flush()
    return files_under(root)


@given(count=st.integers(0, 40), file_size=st.integers(24, 130), block=st.integers(1, 20))
@example(count=5, file_size=104, block=1000)
@example(count=5, file_size=103, block=1000)
@example(count=6, file_size=105, block=5)
def test_every_message_gets_a_unit_without_bitmap(count: int, file_size: int, block: int) -> None:
    units = queued(range(count), start=LATER)
    with TemporaryDirectory() as directory:
        expected = by_the_broker(Path(directory, "broker"), units, file_size)
        summary = build(Path(directory, "ours"), units, file_size, block)
        assert files_under(Path(directory, "ours")) == expected
    assert summary.ext_units == summary.units == count


def test_repetitions_of_a_message_point_to_its_unit(tmp_path: Path) -> None:
    build(tmp_path, queued([0, 3, 4], start=LATER), 4096, block=1)
    found = units_in(tmp_path / "queue")
    assert found[1] == found[2] == found[3]
    assert found[3][12:] == packed(-(2**63) + 20, 8)


def test_a_topic_made_again_starts_its_extension_anew(tmp_path: Path) -> None:
    units = [*queued(range(9), start=LATER), *queued(range(2), start=LATER + 5000)]
    extension = QueueExtBuilder(tmp_path / "ext", 100)
    builder = QueueBuilder(tmp_path / "queue", 100, SEGMENT, extension=extension, born_at=lambda: LATER + 5000)
    put_all(builder, units, stamped=True)
    builder.flush()
    assert builder.finish().ext_units == 2
    assert files_under(tmp_path / "ext").keys() == {f"{0:020d}"}
    assert units_in(tmp_path / "queue")[0][12:] == packed(-(2**63), 8)
