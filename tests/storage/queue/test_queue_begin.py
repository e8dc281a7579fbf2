"""Where a queue begins whose first units are damaged: by the log, however far that has to be read."""

from pathlib import Path

import pytest

from protocol.errors import BeingSearched, QueueBeingSearched, StoreError
from queue_stores import open_queues
from storage.files.waiting import WaitKind
from storage.query.get_message import GetMessageStatus, get_message
from storage.queue import _shared_pass as shared_pass
from storage.queue import queue_holes
from storage.queue.queue import Queue
from store_queries import at_once, wait_of
from store_writer import StoreWriter

UNIT = {"T": 20, "B": 46}


@pytest.fixture(params=["T", "B"])
def topic(request: pytest.FixtureRequest) -> str:
    """A plain queue's, or that of one of batches."""
    return str(request.param)


@pytest.fixture
def begun(topic: str, tmp_path: Path) -> tuple[Path, int]:
    """A store without its first segments, of whose messages that are left the first four units are zeros.

    With the queue offset of the first one of them; between them lies much that is of other queues.
    """
    writer = StoreWriter(tmp_path / "store", segment_size=4096, batch_queue_file_size=UNIT["B"] * 100)
    for number in range(60):
        if topic == "T":
            writer.append("T", b"%d" % number)
        else:
            writer.append_inner_batch("B", [(b"%d" % number, {})])
        for _ in range(20):
            writer.append("Other", b"between")
    writer.close()
    paths = sorted((writer.root / "commitlog").iterdir())
    places = [record.physical_offset for record in writer.records if record.topic == topic]
    for path in paths[:9]:
        path.unlink()
    first = sum(place < int(paths[9].name) for place in places)
    assert 5 < first < 50
    tree = "consumequeue" if topic == "T" else "batchconsumequeue"
    with (writer.root / tree / topic / "0" / f"{0:020}").open("r+b") as file:
        file.seek(UNIT[topic] * first)
        file.write(bytes(UNIT[topic] * 4))
    return writer.root, first


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search is long when it reads more than 100 bytes, and goes on by 1,000."""
    monkeypatch.setattr(queue_holes, "SEARCHED_AT_ONCE", 100)
    monkeypatch.setattr(shared_pass, "PIECE", 1000)


def queue_of(root: Path, topic: str) -> Queue:
    queue = open_queues(root)[0].queue(topic, 0)
    assert queue is not None
    return queue


@pytest.mark.usefixtures("small")
def test_who_may_wait_is_told_at_once_however_far_the_log_is_read(topic: str, begun: tuple[Path, int]) -> None:
    root, first = begun
    assert (queue_of(root, topic).min_offset, queue_of(root, topic).max_offset) == (first, 60)


@pytest.mark.usefixtures("small")
def test_a_long_search_is_handed_on_and_nothing_is_said_of_the_queue_before(
    topic: str, begun: tuple[Path, int]
) -> None:
    """Neither a wrong minimum nor a later message; what was found is remembered."""
    root, first = begun
    queues, log = open_queues(root)
    wakes: list[int] = []
    queues.holes.connect(hand_on=lambda: wakes.append(1))
    queue = queues.queue(topic, 0)
    assert queue is not None
    for _ in range(2):
        with pytest.raises(QueueBeingSearched, match=f"{topic}/0: the queue's first units are damaged or lost") as busy:
            _ = queue.min_offset
        assert isinstance(busy.value, BeingSearched)
        assert isinstance(busy.value, StoreError)
        with pytest.raises(BeingSearched):
            get_message(queues, topic, 0, first, 32, 1 << 20)
    assert (queues.holes.searching, len(wakes)) == (1, 1)
    while queues.holes.searching:
        queues.holes.step()
    assert (queue.min_offset, queue.max_offset) == (first, 60)
    again = at_once(queues.holes.first_message(queue, log.minimum, log.end))  # type: ignore[arg-type]
    assert again is not None
    assert queues.holes.searching == 0
    below = get_message(queues, topic, 0, first - 1, 32, 1 << 20)
    assert (below.status, below.next_begin_offset) == (GetMessageStatus.OFFSET_TOO_SMALL, first)


@pytest.mark.usefixtures("small")
def test_a_search_is_left_to_a_thread_that_may_wait(topic: str, begun: tuple[Path, int]) -> None:
    root, first = begun
    queues, _ = open_queues(root)
    queues.holes.connect(hand_on=lambda: None)
    queue = queues.queue(topic, 0)
    assert queue is not None
    assert open_queues(root)[0].queue(topic, 0).min_offset == first  # type: ignore[union-attr]
    for _ in range(2):
        assert wait_of(queue.measured()).kind is WaitKind.SCAN


@pytest.mark.usefixtures("small")
def test_a_search_is_made_anew_when_the_log_begins_elsewhere(topic: str, begun: tuple[Path, int]) -> None:
    root, first = begun
    queues, _ = open_queues(root)
    queue = queues.queue(topic, 0)
    assert queue is not None
    assert queue.min_offset == first
    sorted((root / "commitlog").iterdir())[0].unlink()
    later, _ = open_queues(root)
    moved = type(queues)(root, later.queue(topic, 0).log, holes=queues.holes)  # type: ignore[union-attr]
    found = moved.queue(topic, 0)
    assert found is not None
    assert found.min_offset == queue_of(root, topic).min_offset > first
