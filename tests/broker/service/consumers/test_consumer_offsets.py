"""Offsets of groups: those of the store, and over them those of live groups."""

from typing import Any

import pytest

from broker.service.consumers import consumer_offsets
from broker.service.consumers.consumer_offsets import ConsumerOffsets
from broker.service.registry_budget import RegistryBudget
from offset_stores import OffsetConfig, OffsetStore


@pytest.fixture
def store() -> Any:
    return OffsetStore(OffsetConfig({("G", "T"): {0: 5, 1: 6}, ("H", "T"): {0: 1}}, {("G", "T"): {0: 9}}))


def test_recorded_offsets_are_found_by_group_topic_and_queue(store: Any) -> None:
    offsets = ConsumerOffsets(store)
    assert offsets.committed("G", "T", 0) == 5
    assert offsets.committed("G", "T", 2) is None
    assert offsets.committed("T", "G", 0) is None
    assert (offsets.pulled("G", "T", 0), offsets.pulled("G", "T", 1)) == (9, -1)
    assert offsets.topics_of("G") == ["T"]
    assert offsets.groups_of("T") == ["G", "H"]


def test_a_committed_offset_covers_the_recorded_one_of_its_queue_alone(store: Any) -> None:
    offsets = ConsumerOffsets(store)
    offsets.commit("G", "T", 0, 2)
    offsets.commit("New", "U", 3, 7)
    assert offsets.offsets_of("G", "T") == {0: 2, 1: 6}
    assert offsets.everything() == {("G", "T"): {0: 2, 1: 6}, ("H", "T"): {0: 1}, ("New", "U"): {3: 7}}
    assert offsets.topics_of("New") == ["U"]


def test_offset_zero_is_an_offset_and_a_negative_one_is_none(store: Any) -> None:
    offsets = ConsumerOffsets(store)
    offsets.commit("G", "T", 0, 0)
    offsets.commit("G", "T", 1, -1)
    assert (offsets.committed("G", "T", 0), offsets.committed("G", "T", 1)) == (0, 6)


def test_more_queues_than_the_limit_are_not_remembered(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_offsets, "QUEUES_LIMIT", 2)
    offsets = ConsumerOffsets(store)
    for queue_id in range(4):
        offsets.commit("N", "T", queue_id, 1)
    offsets.commit("N", "T", 0, 2)
    assert offsets.offsets_of("N", "T") == {0: 2, 1: 1}


def test_beside_a_broker_what_it_writes_down_later_counts_more(store: Any) -> None:
    offsets = ConsumerOffsets(store, gives_way=True)
    offsets.commit("G", "T", 0, 7)
    offsets.commit("G", "T", 2, 3)
    assert offsets.committed("G", "T", 0) == 7
    assert offsets.offsets_of("G", "T") == {0: 7, 1: 6, 2: 3}
    # The broker is back: it writes down where the group is with it, be that before or behind.
    for recorded in (20, 4):
        store.config = OffsetConfig({("G", "T"): {0: recorded, 1: 6}})
        assert offsets.committed("G", "T", 0) == recorded
        assert offsets.offsets_of("G", "T") == {0: recorded, 1: 6, 2: 3}
        assert offsets.everything() == {("G", "T"): {0: recorded, 1: 6, 2: 3}}
    # Away again, and committed here anew.
    offsets.commit("G", "T", 0, 21)
    assert offsets.committed("G", "T", 0) == 21


def test_without_a_broker_beside_a_commit_stays(store: Any) -> None:
    offsets = ConsumerOffsets(store)
    offsets.commit("G", "T", 0, 7)
    store.config = OffsetConfig({("G", "T"): {0: 20}})
    assert offsets.committed("G", "T", 0) == 7


def test_made_up_names_take_so_many_bytes_and_known_groups_go_on(store: Any, caplog: pytest.LogCaptureFixture) -> None:
    offsets = ConsumerOffsets(store)
    offsets.room = RegistryBudget(100_000).room("committed offsets", 1)
    assert offsets.commit("G", "T", 0, 2)
    taken = [offsets.commit(f"{number}" + "g" * 200, "T", 0, 1) for number in range(100)]
    assert 10 < sum(taken) < 40
    assert not offsets.commit("G" * 200, "T", 9, 1)
    assert offsets.room.used <= 100_000
    assert offsets.commit("G", "T", 0, 3), "an offset that is known is moved whatever room there is"
    assert offsets.committed("G", "T", 0) == 3
    assert caplog.text.count("offsets are not remembered") == 1
    assert "registry_bytes=100000" in caplog.text


def test_what_the_store_recorded_is_served_whatever_its_names_are() -> None:
    group, topic = "g" * 5000, "t" * 5000
    offsets = ConsumerOffsets(OffsetStore(OffsetConfig({(group, topic): {0: 5}}, {(group, topic): {0: 9}})))  # type: ignore[arg-type]
    offsets.room = RegistryBudget(10).room("committed offsets", 1)
    assert offsets.committed(group, topic, 0) == 5
    assert offsets.everything() == {(group, topic): {0: 5}}
