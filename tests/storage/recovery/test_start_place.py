"""Where a broker starts to read its log again: the rules of store-format §6.3 and §10."""

import pytest

from storage.layout.checkpoint import Checkpoint
from storage.recovery.start_place import Broker, SegmentHead, StartFacts, recovery_start

NEWER = (Broker.FROM_5_5, Broker.FROM_5_3_1)
HEADS = [SegmentHead(base, 10_000 + base) for base in (0, 1000, 2000, 3000)]


def start(
    heads: list[SegmentHead],
    *,
    crashed: bool,
    queues_end: int = 10**9,
    brokers: tuple[Broker, ...] = NEWER,
    **checkpoint: int,
) -> int:
    fields = dict.fromkeys(Checkpoint.__dataclass_fields__, 0) | checkpoint
    return recovery_start(heads, StartFacts(crashed, Checkpoint(**fields), queues_end), brokers)


def test_after_a_clean_stop_it_is_the_last_segment_that_the_queues_reach() -> None:
    assert start(HEADS, crashed=False) == 3000
    assert start(HEADS, crashed=False, queues_end=3000) == 3000
    assert start(HEADS, crashed=False, queues_end=2999) == 2000


def test_without_queues_it_is_the_first_segment() -> None:
    assert start(HEADS, crashed=False, queues_end=0) == 0


def test_a_segment_without_a_first_record_is_stepped_over() -> None:
    assert start([*HEADS[:3], SegmentHead(3000, 0)], crashed=False) == 2000


def test_after_a_crash_the_checkpoint_of_an_older_broker_counts_less_three_seconds() -> None:
    times = {"physic_msg_timestamp": 15_000, "logics_msg_timestamp": 15_000}
    assert start(HEADS, crashed=True, **times) == 2000
    assert start(HEADS, crashed=True, physic_msg_timestamp=14_999, logics_msg_timestamp=20_000) == 1000


def test_after_a_crash_the_offset_of_a_newer_checkpoint_counts_if_it_is_the_earlier_place() -> None:
    times = {"physic_msg_timestamp": 99_000, "logics_msg_timestamp": 99_000}
    assert start(HEADS, crashed=True, logics_physical_offset=2500, **times) == 2000
    assert start(HEADS, crashed=True, logics_physical_offset=999, **times) == 0


def test_after_a_crash_a_checkpoint_of_zeros_means_the_whole_log() -> None:
    assert start(HEADS, crashed=True) == 0
    assert recovery_start(HEADS, StartFacts(True, None, 0), NEWER) == 0


@pytest.mark.parametrize("crashed", [True, False])
def test_a_log_without_segments_starts_at_its_beginning(crashed: bool) -> None:
    assert start([], crashed=crashed) == 0


@pytest.mark.parametrize(("count", "first"), [(10, 0), (11, 1)])
@pytest.mark.parametrize("crashed", [True, False])
def test_brokers_from_5_5_on_walk_ten_segments_at_most(count: int, first: int, crashed: bool) -> None:
    heads = [SegmentHead(1000 * number, 99) for number in range(count)]
    assert start(heads, crashed=crashed, queues_end=-1, brokers=(Broker.FROM_5_5,)) == 1000 * first
    assert start(heads, crashed=crashed, queues_end=-1, brokers=(Broker.FROM_5_3_1,)) == 0


@pytest.mark.parametrize(("count", "first"), [(3, 0), (4, 1)])
def test_brokers_up_to_5_3_0_walk_the_last_three_segments_after_a_clean_stop(count: int, first: int) -> None:
    heads = [SegmentHead(1000 * number, 99) for number in range(count)]
    assert start(heads, crashed=False, brokers=(Broker.FROM_5_0, Broker.UP_TO_4_9)) == 1000 * first
