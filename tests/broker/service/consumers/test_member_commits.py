"""Whose offsets are taken over, and what is held of the others, for how long and how much."""

from dataclasses import dataclass, field

import pytest

from asking import FakeConnection
from broker.endpoint import Endpoint
from broker.service.consumers.client_registry import ClientRegistry
from broker.service.consumers.member_commits import HELD_COST, HOLD_SECONDS, PROXY_GROUP, MemberCommits
from broker.service.consumers.report_limits import LONGEST_GROUP
from broker.service.registry_budget import RegistryBudget, size_of
from protocol.bodies import ConsumerData, HeartbeatData


class Noted:
    """Stands in for the offsets of a service: notes what is taken over."""

    def __init__(self) -> None:
        self.table: dict[tuple[str, str, int], int] = {}

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        self.table[group, topic, queue_id] = offset
        return True


@dataclass
class Server:
    """Commits over a registry, at a time that the test sets."""

    now: float = 1000.0
    clients: ClientRegistry = field(default_factory=ClientRegistry)
    offsets: Noted = field(default_factory=Noted)

    def __post_init__(self) -> None:
        self.commits = MemberCommits(self.clients, lambda: self.offsets, lambda: self.now)  # type: ignore[arg-type]

    def join(self, connection: FakeConnection, *groups: str) -> None:
        data = HeartbeatData(client_id="c", consumer_data_set=[ConsumerData(group_name=group) for group in groups])
        self.clients.heartbeat(connection, data, "JAVA", 0)
        self.commits.joined(connection, groups)


@pytest.fixture
def server() -> Server:
    return Server()


def test_the_offset_of_a_member_is_taken_over_at_once(server: Server) -> None:
    member = FakeConnection()
    server.join(member, "G")
    server.commits.commit(member, "G", "T", 0, 5)
    assert (server.offsets.table, server.commits.held) == ({("G", "T", 0): 5}, 0)


def test_the_last_offset_of_each_queue_is_held_until_the_client_joins(server: Server) -> None:
    client = FakeConnection()
    for group, queue_id, offset in (("G", 0, 5), ("G", 0, 4), ("G", 1, 7), ("Other", 0, 9), ("G", 2, -1)):
        server.commits.commit(client, group, "T", queue_id, offset)
    assert (server.offsets.table, server.commits.held) == ({}, 3)
    server.join(client, "G")
    assert (server.offsets.table, server.commits.held) == ({("G", "T", 0): 4, ("G", "T", 1): 7}, 1)


def test_what_was_held_leads_no_member_back_that_has_committed_since(server: Server) -> None:
    client = FakeConnection()
    server.commits.commit(client, "G", "T", 0, 5)
    server.commits.commit(client, "G", "T", 1, 6)
    data = HeartbeatData(client_id="c", consumer_data_set=[ConsumerData(group_name="G")])
    server.clients.heartbeat(client, data, "JAVA", 0)  # refused half-way: it joined without notice
    server.commits.commit(client, "G", "T", 0, 9)
    server.join(client, "G")
    assert (server.offsets.table, server.commits.held) == ({("G", "T", 0): 9, ("G", "T", 1): 6}, 0)


def at(host: str) -> FakeConnection:
    return FakeConnection(peer_address=Endpoint(host, 4711))


def test_what_comes_from_the_address_of_a_proxy_is_taken_over_while_the_proxy_is_there(server: Server) -> None:
    hearing, passing = at("192.0.2.8"), at("192.0.2.8")
    server.join(hearing, PROXY_GROUP)
    server.commits.commit(passing, "G", "T", 0, 5)
    server.commits.commit(at("192.0.2.9"), "G", "T", 0, 6)
    assert (server.offsets.table, server.commits.held) == ({("G", "T", 0): 5}, 1)
    server.clients.unregister(hearing, PROXY_GROUP, None)
    server.commits.commit(passing, "G", "T", 0, 7)
    assert server.offsets.table == {("G", "T", 0): 5}


def test_what_was_held_from_the_address_of_a_proxy_is_taken_over_in_order_when_the_proxy_joins(server: Server) -> None:
    first, second, other = at("192.0.2.8"), at("192.0.2.8"), at("192.0.2.9")
    for connection, offset in ((second, 7), (first, 5), (other, 9)):
        server.now += 1
        server.commits.commit(connection, "G", "T", 0, offset)
    server.join(at("192.0.2.8"), PROXY_GROUP)
    assert (server.offsets.table, server.commits.held) == ({("G", "T", 0): 5}, 1)


@pytest.mark.parametrize(("seconds", "is_taken"), [(HOLD_SECONDS, True), (HOLD_SECONDS + 0.1, False)])
def test_an_offset_is_held_for_so_long_alone(server: Server, seconds: float, is_taken: bool) -> None:
    client = FakeConnection()
    server.commits.commit(client, "G", "T", 0, 5)
    server.now += seconds
    server.join(client, "G")
    assert (("G", "T", 0) in server.offsets.table, server.commits.held) == (is_taken, 0)


def test_what_a_client_left_is_dropped_with_its_connection(server: Server) -> None:
    client = FakeConnection()
    server.commits.commit(client, "G", "T", 0, 5)
    server.commits.connection_lost(client)
    server.join(client, "G")
    assert (server.offsets.table, server.commits.held) == ({}, 0)
    client.is_open = False
    server.commits.commit(client, "H", "T", 0, 5)
    assert server.commits.held == 0


def test_no_more_than_so_many_are_held_and_old_ones_give_way(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server.commits, "room", RegistryBudget(3 * (HELD_COST + size_of("G", "T"))).room("held", 1))
    first, second = FakeConnection(), FakeConnection()
    for queue_id in range(5):
        server.commits.commit(first, "G", "T", queue_id, 1)
    assert server.commits.held == 3
    server.commits.commit(first, "G", "T", 2, 9)
    server.commits.commit(second, "G", "T", 0, 1)
    assert server.commits.held == 3
    server.now += HOLD_SECONDS + 1
    server.commits.commit(second, "G", "T", 0, 6)
    assert server.commits.held == 1
    server.join(second, "G")
    server.join(first, "G")
    assert server.offsets.table == {("G", "T", 0): 6}
    server.commits.commit(second, "x" * (LONGEST_GROUP + 1), "T", 0, 6)
    assert server.commits.held == 0
