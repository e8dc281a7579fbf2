"""Which topics of a broker's own an account may name: by the groups and topics that a store knows, on every port."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acl_file import signed_fields, signed_request, write_accounts
from asking import FakeConnection
from broker.security.accounts import Account, Permission, watched_accounts
from broker.security.guard import Guard
from broker.security.topic_rights import may_read, permits_topic
from broker_harness import RawClient, connected, service_of, serving
from draining import pull_of
from golden_store import CASES, unpack
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Command, Response, decode_command
from protocol.frame import FrameDecoder
from protocol.message import decode_message, decode_messages
from protocol.system_topics import RETRY_PREFIX
from storage.files.waiting import finish
from storage.life.origins import Origins
from storage.store.message_store import MessageStore
from store_writer import StoreWriter

POP = CASES / "A1-A2-B1-pop"
RETRY, DEAD = "%RETRY%g1_orders", "%DLQ%g1"
SECRET = "pass12345678"
CONSUMER, OTHER = ("usergood", SECRET), ("usertest", SECRET)
"""An account with exactly the rights of the consumer g1 of orders; and one to which orders and payments are denied."""

COPIES = {315: "orders", 634: "orders", 3518: RETRY, 3890: RETRY, 9266: RETRY, 10088: DEAD}
"""The messages of orders that g1 failed to consume and their copies, by physical offset: the topic of each."""

ANY_TIME = {"beginTimestamp": "0", "endTimestamp": "9" * 18}


@pytest.fixture(scope="module")
def popped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("store", tmp_path_factory.mktemp("pop"), archives=POP)


def accounts_in(directory: Path) -> Path:
    return write_accounts(directory / "plain_acl.yml", (POP / "plain_acl.yml").read_text())


@asynccontextmanager
async def guarded(root: Path, tmp_path: Path) -> AsyncIterator[RawClient]:
    service = service_of(await asyncio.to_thread(MessageStore.open, root), acl=accounts_in(tmp_path))
    async with serving(service) as server, connected(server.addresses[0]) as client:
        yield client


async def ask(client: RawClient, code: int, fields: Mapping[str, str], who: tuple[str, str]) -> Command:
    return await client.ask(code, signed_fields(dict(fields), *who))


async def assert_for_the_consumer_alone(
    client: RawClient, code: int, fields: Mapping[str, str], offsets: list[int]
) -> None:
    answer = await ask(client, code, fields, CONSUMER)
    assert answer.code == 0, answer.remark
    assert [message.physical_offset for message in decode_messages(bytes(answer.body))] == offsets
    refused = await ask(client, code, fields, OTHER)
    assert (refused.code, bytes(refused.body)) == (ResponseCode.NO_PERMISSION, b"")
    assert "topic" in fields or "orders" not in (refused.remark or "")


@pytest.mark.asyncio
async def test_the_consumer_of_popped_messages_gets_all_its_copies_and_who_lacks_the_right_gets_none(
    popped: Path, tmp_path: Path
) -> None:
    async with guarded(popped, tmp_path) as client:
        for offset, topic in COPIES.items():
            for named in ({}, {"topic": "orders"}, {"topic": topic}):
                fields = {"offset": str(offset)} | named
                await assert_for_the_consumer_alone(client, RequestCode.VIEW_MESSAGE_BY_ID, fields, [offset])
        for topic, key, copies, wanted in (
            ("orders", "k-given-up", "true", [634, 3890, 9266, 10088]),
            ("orders", "k-given-up", "", [634]),
            (RETRY, "k-given-up", "", [3890, 9266]),
            (DEAD, "k-given-up", "", [10088]),
            (RETRY, "k-retried", "", [3518]),
        ):
            fields = {"topic": topic, "key": key, "maxNum": "32", "rocketlensCopies": copies} | ANY_TIME
            await assert_for_the_consumer_alone(client, RequestCode.QUERY_MESSAGE, fields, wanted)
        for topic, wanted in ((RETRY, [3518, 3890, 9266]), (DEAD, [10088])):
            fields = pull_of(topic, consumerGroup="g1")
            await assert_for_the_consumer_alone(client, RequestCode.PULL_MESSAGE, fields, wanted)


def test_a_port_admits_what_the_account_may_ask_any_store_that_is_served(popped: Path, tmp_path: Path) -> None:
    """A route names the queues of all stores, so that a topic of one of them may be asked for at every port."""
    writer = StoreWriter(tmp_path / "second")
    writer.append("other")
    writer.close()
    stores = [MessageStore.open(root) for root in (writer.root, popped)]
    watched = watched_accounts(accounts_in(tmp_path))

    def route(guard: Guard, who: tuple[str, str]) -> object:
        (frame,) = FrameDecoder().feed(signed_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": RETRY}, *who))
        return finish(guard.admit(decode_command(frame), FakeConnection()))

    guard = Guard(watched, map(Origins, stores))
    assert isinstance(route(guard, CONSUMER), Account)
    assert isinstance(route(guard, OTHER), Response)
    assert isinstance(route(Guard(watched, [Origins(stores[0])]), CONSUMER), Response)


@pytest.mark.parametrize(
    ("topic", "rights", "is_permitted"),
    [
        ("%RETRY%g", {"%RETRY%g": "SUB"}, True),
        ("%DLQ%g", {"%RETRY%g": "SUB"}, True),
        ("%DLQ%g", {"%RETRY%g": "SUB", "%DLQ%g": "DENY"}, False),
        ("%DLQ%g", {"%RETRY%h": "SUB"}, False),
        ("%RETRY%g_T", {"%RETRY%g": "SUB", "T": "SUB"}, True),
        ("%RETRY%g_T", {"%RETRY%g": "SUB"}, False),
        ("%RETRY%g_T", {"T": "SUB"}, False),
        ("%RETRY%g_T", {"%RETRY%g_T": "SUB"}, True),
        ("%RETRY%g+T", {"%RETRY%g": "SUB", "T": "SUB"}, True),
        ("%RETRY%unheard+other", {"%RETRY%unheard": "SUB", "other": "SUB"}, True),
        ("%RETRY%unheard_T", {"%RETRY%unheard": "SUB", "T": "SUB"}, False),
        ("%RETRY%a_b_c", {"%RETRY%a": "SUB", "b_c": "SUB"}, True),
        ("%RETRY%a_b_c", {"%RETRY%a_b": "SUB", "c": "SUB"}, True),
        ("%RETRY%a_b_c", {"%RETRY%a_b": "SUB", "b_c": "SUB"}, False),
    ],
)
def test_the_name_of_a_topic_of_copies_is_permitted_by_its_group_and_its_topic(
    known: Origins, topic: str, rights: Mapping[str, str], is_permitted: bool
) -> None:
    assert permits_topic(account_of(rights), topic, [known]) is is_permitted


@pytest.mark.parametrize("topic", ["%RETRY%g_T", "%RETRY%g+T", "%RETRY%unheard_T", "%RETRY%unheard+T"])
def test_an_account_to_which_a_topic_is_denied_may_not_name_copies_that_may_be_of_it(
    known: Origins, topic: str
) -> None:
    everything = {"defaults": "SUB"}
    assert permits_topic(account_of(everything), topic, [known])
    assert not permits_topic(account_of(everything | {"T": "DENY"}), topic, [known])
    assert permits_topic(account_of(everything | {"T": "DENY"}), "%RETRY%fresh_T", [known]), "the store has none such"


NAMES = ("T", "b_c", "c", "g", "a", "a_b", "unheard", "other")


@given(
    st.dictionaries(
        st.sampled_from([*NAMES, *(f"{RETRY_PREFIX}{name}" for name in NAMES)]), st.sampled_from(["SUB", "DENY"])
    ),
    st.sampled_from(["SUB", "DENY"]),
)
def test_whoever_may_read_a_record_may_name_its_topic(
    known_store: MessageStore, rights: dict[str, str], defaults: str
) -> None:
    """So that a consumer with exactly its rights is never refused what it would be given."""
    account, known = account_of(rights | {"defaults": defaults}), Origins(known_store)
    for topic in known_store.queues.topics():
        queue = known_store.queues.queue(topic, 0)
        assert queue is not None
        for entry in queue.entries(0, 10):
            message = decode_message(known_store.record_at(entry.physical_offset) or b"")
            if may_read(account, message, known):
                assert permits_topic(account, topic, [known])
                origin = known.of(message)
                assert origin.topic is None or account.permits(origin.topic, Permission.SUB)


@pytest.fixture(scope="module")
def known_store(tmp_path_factory: pytest.TempPathFactory) -> MessageStore:
    """A store that knows three groups, with a message in topics of each kind of copies, of known groups and others."""
    writer = StoreWriter(tmp_path_factory.mktemp("known") / "store")
    for topic in ("T", "b_c", "c"):
        writer.append(topic, b"x")
    for topic in ("%RETRY%g", "%DLQ%g"):
        writer.append(topic, b"x", properties={"RETRY_TOPIC": "T"})
    for name in ("unheard_T", "unheard+T", "a_b_c", "g_T", "g+T"):
        writer.append(f"{RETRY_PREFIX}{name}", b"x")
    writer.close()
    config = writer.root / "config"
    config.mkdir(exist_ok=True)
    groups = {name: {"groupName": name} for name in ("g", "a", "a_b")}
    (config / "subscriptionGroup.json").write_text(json.dumps({"subscriptionGroupTable": groups}))
    return MessageStore.open(writer.root)


@pytest.fixture(scope="module")
def known(known_store: MessageStore) -> Origins:
    return Origins(known_store)


def account_of(rights: Mapping[str, Any]) -> Account:
    """An account with some rights by resource; `defaults` are those to all others, DENY where nothing is said."""
    words = {name: Permission.NONE if word == "DENY" else Permission[word] for name, word in rights.items()}
    default = words.pop("defaults", Permission.NONE)
    return Account("account-key", b"", False, lambda _host: False, default, default, words)
