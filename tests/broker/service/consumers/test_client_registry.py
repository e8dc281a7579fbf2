"""Members of groups: they come by heartbeat, and go by taking leave, by losing their connection, and by silence."""

from typing import Any

import pytest

from asking import FakeConnection
from broker.service.consumers import client_registry
from broker.service.consumers.client_registry import EXPIRY_SECONDS, ClientRegistry
from broker.service.consumers.kept_filters import KeptFilters
from broker.service.consumers.subscriptions import expressions_of
from broker.service.registry_budget import BudgetSpent, RegistryBudget
from heartbeats import consumer, heartbeat, subscription
from protocol.bodies import HeartbeatData, decode_json
from still_clock import StillClock
from storage.files.waiting import finish


@pytest.fixture
def registry(clock: StillClock) -> ClientRegistry:
    return ClientRegistry(clock)


def beat(registry: ClientRegistry, connection: FakeConnection, client_id: str, *consumers: Any, **members: Any) -> bool:
    data = decode_json(heartbeat(client_id, *consumers, **members), HeartbeatData)
    told = (each for group in data.consumer_data_set for each in group.subscription_data_set)
    return registry.heartbeat(connection, data, "JAVA", 479, finish(KeptFilters().make_all(expressions_of(told))))


def ids(registry: ClientRegistry, group: str) -> list[str]:
    return sorted(member.client_id for member in registry.members_of(group))


def test_a_client_with_two_connections_is_gone_only_with_both(registry: ClientRegistry) -> None:
    first, second = FakeConnection(), FakeConnection()
    beat(registry, first, "c1", consumer("G"))
    beat(registry, second, "c1", consumer("G"))
    first.is_open = False
    assert ids(registry, "G") == ["c1"]
    second.is_open = False
    assert registry.consumer_group("G") is None


def test_silence_of_two_minutes_ends_a_membership_and_any_heartbeat_renews_it(
    registry: ClientRegistry, clock: StillClock
) -> None:
    connection = FakeConnection()
    beat(registry, connection, "c1", consumer("G"), producers=("P",))
    clock.seconds += EXPIRY_SECONDS - 1
    beat(registry, connection, "c1", consumer("G"))
    clock.seconds += 2
    assert ids(registry, "G") == ["c1"]
    assert registry.producers("P") == ()
    clock.seconds += EXPIRY_SECONDS
    assert registry.consumer_group("G") is None


def test_the_latest_heartbeat_says_what_a_group_subscribes_to(registry: ClientRegistry) -> None:
    connection = FakeConnection()
    beat(registry, connection, "c1", consumer("G", subscription("A", "x", 1), subscription("B", "y", 1)))
    beat(registry, connection, "c1", consumer("G", subscription("A", "z", 2)))
    found = registry.subscription("G", "A")
    assert found is not None
    assert found.sub_string == "z"
    assert registry.subscription("G", "B") is None
    assert list(registry.groups_subscribed_to("A")) == ["G"]


def test_a_member_that_lags_behind_does_not_bring_back_an_older_subscription(registry: ClientRegistry) -> None:
    beat(registry, FakeConnection(), "new", consumer("G", subscription("A", "new", 5)))
    beat(registry, FakeConnection(), "old", consumer("G", subscription("A", "old", 4)))
    found = registry.subscription("G", "A")
    assert found is not None
    assert found.sub_string == "new"


def test_a_group_that_comes_back_has_nothing_of_what_it_said_before(registry: ClientRegistry) -> None:
    """Clocks of clients differ: its subscription may be older by them than that of members long gone."""
    first, second = FakeConnection(), FakeConnection()
    beat(registry, first, "c1", consumer("G", subscription("A", "a > 1", 5, "SQL92"), subscription("B")))
    assert list(registry.filters_of("G")) == ["A"]
    registry.unregister(first, "G", None)
    beat(registry, second, "c2", consumer("G", subscription("A", "x", 4)))
    told = registry.subscription("G", "A")
    assert told is not None
    assert told.sub_string == "x"
    assert registry.subscription("G", "B") is None
    assert registry.filters_of("G") == registry.filters_of("Nobody") == {}


def test_a_heartbeat_that_leaves_subscriptions_out_changes_no_filter(registry: ClientRegistry) -> None:
    connection = FakeConnection()
    beat(registry, connection, "c1", consumer("G", subscription("A", "a > 1", 5, "SQL92")))
    beat(registry, connection, "c1", consumer("G"), withoutSub=True)
    assert list(registry.filters_of("G")) == ["A"]
    beat(registry, connection, "c1", consumer("G"))
    assert registry.filters_of("G") == {}


def test_groups_nobody_asks_about_are_swept_out_by_later_heartbeats(
    registry: ClientRegistry, clock: StillClock
) -> None:
    gone = FakeConnection(is_open=False)
    for number in range(50):
        beat(registry, gone, "gone", consumer(f"G{number}"), producers=(f"P{number}",))
    clock.seconds += 11
    beat(registry, FakeConnection(), "c1", consumer("Last"))
    assert list(registry._consumers) == ["Last"]
    assert not registry._producers


# ---------------------------------------------------------------------- what all of it takes


def test_what_was_told_is_counted_and_given_back_when_clients_are_gone(
    registry: ClientRegistry, clock: StillClock
) -> None:
    connections = [FakeConnection() for _ in range(5)]
    for version in range(3):
        for number, connection in enumerate(connections):
            told = consumer(f"G{number}", subscription("T" * 100, "A" * 5000 * version, version))
            beat(registry, connection, f"c{version}", told, consumer("Shared"), producers=("P", f"P{number}"))
            registry.unregister(connection, f"G{number}", "P")
    assert registry.room.used > 5 * 6 * 10_000
    for connection in connections[:3]:
        registry.connection_lost(connection)
    clock.seconds += EXPIRY_SECONDS + 1
    registry.sweep()
    for connection in connections[3:]:
        registry.connection_lost(connection)
    assert (registry.room.used, len(registry)) == (0, 0)


def test_a_newcomer_without_room_is_refused_and_all_is_as_it_was(registry: ClientRegistry) -> None:
    registry.room = RegistryBudget(20_000).room("groups and subscriptions", 1)
    assert beat(registry, FakeConnection(), "c1", consumer("G", subscription("A")))
    used = registry.room.used
    with pytest.raises(BudgetSpent, match="groups and subscriptions of all clients"):
        beat(registry, FakeConnection(), "c2", consumer("H", subscription("A", "x" * 20_000)))
    assert registry.consumer_group("H") is None
    assert (registry.room.used, ids(registry, "G")) == (used, ["c1"])


def test_a_member_stays_one_with_what_it_told_before_however_full_it_is(
    registry: ClientRegistry, clock: StillClock
) -> None:
    registry.room = RegistryBudget(20_000).room("groups and subscriptions", 1)
    connection = FakeConnection()
    beat(registry, connection, "c1", consumer("G", subscription("A", "x", 1)), producers=("P",))
    while registry.room.take(500):
        pass
    for _ in range(5):
        clock.seconds += EXPIRY_SECONDS / 2
        assert beat(registry, connection, "c1", consumer("G", subscription("A", "x", 1)), producers=("P",))
        with pytest.raises(BudgetSpent):
            beat(registry, connection, "c1", consumer("G", subscription("A", "y" * 5000, 2)), producers=("P",))
    assert ids(registry, "G") == ["c1"]
    assert len(registry.producers("P")) == 1
    told = registry.subscription("G", "A")
    assert told is not None
    assert told.sub_string == "x"


def test_members_go_on_where_there_are_as_many_groups_as_are_kept(
    registry: ClientRegistry, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_registry, "GROUPS_LIMIT", 2)
    connection = FakeConnection()
    for _ in range(5):
        assert beat(registry, connection, "c1", consumer("A"), producers=("B",))
        clock.seconds += EXPIRY_SECONDS / 2
        assert not beat(registry, connection, "c1", consumer("A"), consumer("C"), producers=("B",))
    assert ids(registry, "A") == ["c1"]
    assert set(registry.producer_groups()) == {"B"}


def test_one_connection_joins_so_many_groups_in_its_life(
    registry: ClientRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_registry, "GROUPS_OF_ONE", 10)
    connection = FakeConnection()
    for number in range(10):
        assert beat(registry, connection, "c1", consumer(f"G{number}"))
        registry.unregister(connection, f"G{number}", None)
    assert not beat(registry, connection, "c1", consumer("G10"))
    assert beat(registry, connection, "c1", consumer("G3"))
    assert beat(registry, FakeConnection(), "c2", consumer("G10"))


def test_of_many_groups_some_are_swept_at_a_time(
    registry: ClientRegistry, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_registry, "SWEPT_AT_ONCE", 3)
    connection = FakeConnection()
    for number in range(10):
        beat(registry, connection, "c", consumer(f"G{number}"))
    clock.seconds += EXPIRY_SECONDS + 1
    left = []
    while registry._consumers:
        left.append(len(registry))
        registry.sweep()
    assert left == [10, 7, 4, 1]


def test_members_of_a_large_group_are_looked_at_once_a_second(
    registry: ClientRegistry, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_registry, "MANY_MEMBERS", 2)
    connections = [FakeConnection() for _ in range(4)]
    for number, connection in enumerate(connections):
        beat(registry, connection, f"c{number}", consumer("G"))
    assert len(ids(registry, "G")) == 4
    connections[0].is_open = False
    assert len(ids(registry, "G")) == 4
    clock.seconds += 1
    assert len(ids(registry, "G")) == 3


# ---------------------------------------------------------------------- who hears of a change


def changes(registry: ClientRegistry) -> list[str]:
    """The names of the groups that change from now on, in order."""
    names: list[str] = []
    registry.listen(on_change=lambda group: names.append(group.name))
    return names


def test_a_group_changes_when_members_come_and_go_and_topics_do(registry: ClientRegistry) -> None:
    told = changes(registry)
    connection = FakeConnection()
    beat(registry, connection, "c1", consumer("G", subscription("A", "x", 1)))
    beat(registry, FakeConnection(), "c2", consumer("G", subscription("A", "y", 2)))
    assert told == ["G", "G"]
    beat(registry, connection, "c1", consumer("G", subscription("A", "z", 3), subscription("B")))
    assert told == ["G"] * 3
    registry.unregister(connection, "G", None)
    assert told == ["G"] * 4


def test_a_lost_connection_takes_its_client_out_of_all_groups(registry: ClientRegistry) -> None:
    connection, other = FakeConnection(), FakeConnection()
    beat(registry, connection, "c1", consumer("G"), consumer("H"))
    beat(registry, other, "c2", consumer("G"))
    told = changes(registry)
    registry.connection_lost(connection)
    registry.connection_lost(connection)
    assert sorted(told) == ["G", "H"]
    assert ids(registry, "G") == ["c2"]
    assert ids(registry, "H") == []


def test_whoever_remembers_what_a_group_chooses_by_can_tell_when_to_forget(
    registry: ClientRegistry, clock: StillClock
) -> None:
    """`changes` counts up with all that may lead to another filter, and with nothing that a quiet group does."""
    first, second = FakeConnection(), FakeConnection()

    def changes_after(connection: FakeConnection, *subscriptions: Any, **members: Any) -> int:
        before = registry.changes
        beat(registry, connection, "c", consumer("G", *subscriptions, **members))
        return registry.changes - before

    assert changes_after(first, subscription("T", "A", 1)) > 0
    assert changes_after(first, subscription("T", "A", 1)) == 0
    assert changes_after(first, subscription("T", "B", 2)) > 0
    assert changes_after(first, subscription("T", "a > 5", 3, "SQL92")) > 0
    assert changes_after(first, subscription("T", "a > 6", 4, "SQL92"), messageModel="CLUSTERING") > 0
    assert changes_after(first, subscription("T", "a > 6", 4, "SQL92"), messageModel="BROADCASTING") > 0
    assert changes_after(second, subscription("T", "a > 6", 4, "SQL92"), messageModel="BROADCASTING") > 0
    before = registry.changes
    registry.unregister(second, "G", None)
    assert registry.changes > before
    before, clock.seconds = registry.changes, clock.seconds + EXPIRY_SECONDS + 1
    registry.sweep()
    assert registry.changes > before
