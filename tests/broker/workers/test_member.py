"""What a worker besides worker 0 knows of groups."""

import asyncio
from pathlib import Path

import pytest

from asking import FakeConnection
from broker.limits import Limits
from broker.service import long_work
from broker.service.dispatcher import Request
from broker.workers.link import Link, LinkKind
from broker.workers.member import CopiedRegistry, WorkerMember
from broker_harness import service_of, until
from heartbeats import subscription
from protocol.bodies import SubscriptionData, decode_json, encode_json
from protocol.codes import RequestCode
from protocol.command import Command
from protocol.headers import EmptyRequestHeader
from storage.files.waiting import finish
from storage.store.message_store import MessageStore


def told(*subscriptions: dict[str, object]) -> bytes:
    return encode_json([decode_json(encode_json(one), SubscriptionData) for one in subscriptions])


def put(registry: CopiedRegistry, name: str, *subscriptions: dict[str, object]) -> None:
    fields = name, "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET", told(*subscriptions)
    registry.take(finish(registry.read(*fields)))


def test_whoever_remembers_what_a_group_chooses_by_can_tell_when_to_forget() -> None:
    """`changes` counts up with all that worker 0 tells, and with what a new one does not tell again."""
    registry = CopiedRegistry()
    put(registry, "G", subscription("T", "A"))
    put(registry, "H", subscription("T", "A"))
    before = registry.changes
    assert before > 0
    put(registry, "G", subscription("T", "B", 2))
    group = registry.consumer_group("G")
    assert group is not None
    assert group.subscriptions["T"].sub_string == "B"
    assert registry.changes > before
    before = registry.changes
    registry.mark_unconfirmed()
    assert registry.changes == before
    put(registry, "G", subscription("T", "B", 2))
    before = registry.changes
    registry.drop_unconfirmed()
    assert (registry.consumer_group("H"), registry.changes > before) == (None, True)
    before = registry.changes
    registry.drop("G")
    assert (registry.has_consumers, registry.changes > before) == (False, True)


def group(name: str, *subscriptions: dict[str, object]) -> list[object]:
    return [LinkKind.GROUP, name, "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET", told(*subscriptions)]


@pytest.mark.asyncio
async def test_groups_that_take_long_to_read_are_read_on_a_thread_and_all_are_known_in_order(g1_store: Path) -> None:
    service = service_of(MessageStore.open(g1_store), CopiedRegistry)
    clients = service.clients
    assert isinstance(clients, CopiedRegistry)
    member = WorkerMember(service.registries, b"")
    link = Link(lambda _link, _message: None, lambda _link: None)
    long = [subscription(f"T{number}", f"a > {number} AND b > 1 AND c > 2", kind="SQL92") for number in range(60)]
    assert len(told(*long)) < long_work.UNITS_A_TURN * long_work.BYTES_A_UNIT
    try:
        member._take(link, group("G", *long))
        assert clients.consumer_group("G") is None, "not on the event loop"
        member._take(link, group("H", subscription("T")))
        member._take(link, [LinkKind.GONE, "G"])
        member._take(link, group("I", *long))
        member._take(link, group("I", subscription("T", "A", 2)))
        await until(lambda: not member._notices)
    finally:
        member.stop()
    assert clients.consumer_group("G") is None
    assert clients.consumer_group("H") is not None
    known = clients.consumer_group("I")
    assert known is not None
    assert list(known.subscriptions) == ["T"]
    assert known.subscriptions["T"].sub_string == "A"


class Client(FakeConnection):
    """A connection that is a key of tables, as real ones are."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__


@pytest.mark.asyncio
async def test_heartbeats_are_kept_for_a_new_worker_0_as_far_as_there_is_room(g1_store: Path) -> None:
    service = service_of(MessageStore.open(g1_store), limits=Limits(registry_bytes=1 << 20))
    member = WorkerMember(service.registries, b"")
    member._loop = asyncio.get_running_loop()
    connections = [Client() for _ in range(4)]
    waiting = []

    def send(connection: FakeConnection, size: int) -> None:
        command = Command(code=RequestCode.HEART_BEAT, body=b" " * size)
        waiting.append(member.forward(EmptyRequestHeader(), Request(command, connection)))

    for connection in connections:
        send(connection, 200_000)
    assert len(member._heartbeats) == 2
    send(connections[0], 10)
    send(connections[3], 200_000)
    assert len(member._heartbeats) == 3
    for connection in connections:
        member.connection_lost(connection)
    assert (len(member._heartbeats), service.budget.used) == (0, 0)
    for future in waiting:
        assert isinstance(future, asyncio.Future)
        future.cancel()
