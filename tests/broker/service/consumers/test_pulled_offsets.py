"""What is in flight to groups that consume here: pulled and not committed."""

from pathlib import Path
from typing import Any

import pytest

from asking import Asker
from broker.lane.fast_lane import FastLane
from broker.service.consumers import pulled_offsets
from broker.service.consumers.pulled_offsets import PulledOffsets
from broker.service.registry_budget import RegistryBudget
from heartbeats import consumer, heartbeat, subscription
from lane_requests import pull
from protocol.codes import RequestCode
from protocol.command import decode_command, ext_fields_of
from protocol.frame import FrameDecoder
from store_writer import StoreWriter

GROUP, TOPIC = "G", "TopicTest"


def test_the_last_pull_of_a_queue_counts_wherever_it_was_made() -> None:
    clock = [10.0]
    pulled = PulledOffsets(lambda: clock[0])
    pulled.note("G", "T", 0, 5)
    pulled.read_also(lambda second: [(("G", "T", 0), (9, 80)), (("G", "T", 1), (9, 7))] if second <= 9 else [])
    assert pulled.next_offsets("G", "T") == {0: 5, 1: 7}
    clock[0] = 12.0
    pulled.take([(("G", "T", 1), (11, 3))])
    assert pulled.next_offsets("G", "T") == {0: 5, 1: 3}
    assert pulled.next_offsets("G", "other") == {}


def test_made_up_groups_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulled_offsets, "QUEUES_LIMIT", 10)
    pulled = PulledOffsets(lambda: 10.0)
    for number in range(30):
        pulled.note(f"G{number}", "T", 0, 1)
        pulled.take([((f"H{number}", "T", 0), (1, 1))])
    assert len(pulled.settle()) == 10
    assert pulled.next_offsets("G1", "T") == {}
    pulled.note("H1", "T", 0, 9)
    assert pulled.next_offsets("H1", "T") == {0: 9}


def test_names_are_counted_in_bytes_and_who_has_not_pulled_for_long_gives_way() -> None:
    clock = [10.0]
    pulled = PulledOffsets(lambda: clock[0])
    pulled.room = RegistryBudget(20_000).room("pulled queues", 1)
    for number in range(100):
        pulled.note(f"{number}" + "g" * 200, "T", 0, number + 1)
    assert pulled.room.used <= 20_000
    taken = len(pulled.settle())
    assert 10 < taken < 40
    pulled.note("new", "T", 0, 5)
    for number in range(100):
        pulled.take([((f"{number}" + "h" * 200, "T", 0), (10, 1))])
    assert pulled.room.used <= 20_000
    clock[0] += pulled_offsets.OLD_SECONDS + 1
    pulled.take([(("h", "T", 0), (int(clock[0]), 7))])
    assert pulled.next_offsets("h", "T") == {0: 7}
    assert pulled.room.used < 2000


@pytest.fixture
def asker(tmp_path: Path) -> Asker:
    writer = StoreWriter(tmp_path)
    for number in range(210):
        writer.append(TOPIC, b"%d" % number)
    writer.close()
    asker = Asker(tmp_path)
    assert asker.ask(RequestCode.HEART_BEAT, {}, heartbeat("c", consumer(GROUP, subscription(TOPIC)))).code == 0
    return asker


def progress(asker: Asker, group: str = GROUP) -> tuple[Any, Any]:
    table = asker.value(RequestCode.GET_CONSUME_STATS, {"consumerGroup": group, "topic": TOPIC})["offsetTable"]
    (wrapper,) = (value for key, value in table.items() if '"queueId": 0' in key)
    return wrapper["consumerOffset"], wrapper["pullOffset"]


def pull_from(asker: Asker, queue_offset: int) -> bytes:
    """A pull of 32 messages, as a Java client sends it; answered on the ordinary way."""
    data = pull(TOPIC, 0, queue_offset, consumerGroup=GROUP)
    command = decode_command(FrameDecoder().feed(data)[0])
    assert asker.ask(command.code, ext_fields_of(command)).code == 0
    return data


@pytest.mark.lane
def test_pulls_of_the_fast_lane_count_alike(asker: Asker) -> None:
    lane = FastLane(asker.service)
    asker.serve_with(learn=lane.learn)
    for _ in range(2):
        data = pull_from(asker, 32)
        assert not lane.answer(b"")[0]
    assert lane.answer(data)[0], "of such pulls two were answered on the ordinary way"
    assert progress(asker) == (0, 64)
    assert lane.answer(pull(TOPIC, 0, 40, consumerGroup=GROUP))[0]
    assert progress(asker) == (0, 72)
    lane._known.forget()
    assert progress(asker) == (0, 72)
