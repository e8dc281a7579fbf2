"""Unmodified clients in Java, Node and Go receive what the broker of a store gave them, and find every message."""

import contextlib
from dataclasses import dataclass
from functools import partial
from itertools import cycle, product

import pytest

from blocking_client import eventually
from interop.flows import FAILING, FLOWS, FLOWS_FOLDER, as_stored, ends, expected, place, shown
from interop.jars import OLD_CLIENT_VERSION, SERVER_VERSION
from interop.java_client import Consumed, JavaClient, JavaError
from interop.other_clients import other_consumers
from interop.sites import QUERY_MESSAGE, VIEW_MESSAGE_BY_ID, site
from interop.stages import Stage
from interop.stored import Stored, as_java_shows, comparable, stored, unpacked_body

pytestmark = pytest.mark.interop

FORMS = {"": "JSON", "-binary": "ROCKETMQ"}
VERSIONS = (SERVER_VERSION, OLD_CLIENT_VERSION)
CLIENTS = {f"{version}{name}": (version, form) for version in VERSIONS for name, form in FORMS.items()}
SOME_CLIENTS = ("5.5.0-binary",)
"""The old version receives beside it in `test_consumer_groups.py`, with the other form of headers."""

CONSUMER_SEND_MSG_BACK, NO_PERMISSION = 36, 16
SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE = 10, 310, 320
SENDS = {SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE}
PULLS_OF_A_QUEUE = 20
"""Far more than a client needs in this time, far fewer than it sends when a server does not hold them."""


@dataclass(frozen=True)
class Run:
    """All flows, run beside each other by one client against one server."""

    store: Stored
    stage: Stage
    client: JavaClient
    consumed: dict[str, Consumed]
    pulled: list[str]
    lite_offset: int
    failing: Consumed | None
    """What the failing consumer had done when it was allowed to take its messages."""

    @property
    def is_old_client(self) -> bool:
        return self.client.version == OLD_CLIENT_VERSION

    def group(self, name: str) -> str:
        return group_of(self.client, self.stage, name)


def group_of(client: JavaClient, stage: Stage, name: str) -> str:
    """Members of one broadcasting group differ in the end of their names."""
    name, server = name.removesuffix("-too"), "ours" if stage.is_read_only else "official"
    return f"CG_{name}_{client.version}_{client.form}_{server}".replace(".", "-")


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[] if name in SOME_CLIENTS else pytest.mark.soak) for name in CLIENTS],
)
def run(request, store, stage, java):
    client = java(*CLIENTS[request.param])
    # The official broker takes refused messages back, and delivers them again from a retry topic.
    flows = FLOWS | ({"failing": FAILING} if stage.is_read_only else {})
    consumers = {name: flow.subscription(group_of(client, stage, name)) for name, flow in flows.items()}
    client.consume(stage.name_server, consumers)
    for name in FLOWS:
        eventually(partial(has_drained, store, stage, client, name), f"consumer {name} at the end of its queues")
    failing = let_failing_consumer_succeed(store, client) if "failing" in flows else None
    lite_offset = client.offset_for_timestamp("lite", 3, 1)
    consumed = client.end(*flows)
    pulled = client.pull(stage.name_server, group_of(client, stage, "pull"), "BulkTopic", "Tag1 || Tag2")
    yield Run(store, stage, client, consumed, pulled, lite_offset, failing)
    client.disconnect(stage.name_server)


def has_drained(store: Stored, stage: Stage, client: JavaClient, name: str) -> bool:
    flow = FLOWS[name]
    if not stage.has_asked_for_more(group_of(client, stage, name), flow.topic, ends(store, flow.topic)):
        return False
    return len(client.look(name).messages) >= len(expected(store, flow))


def let_failing_consumer_succeed(store: Stored, client: JavaClient) -> Consumed:
    """Once it has refused each of its messages twice."""
    wanted = {place(record) for record in expected(store, FAILING)}

    def has_refused_all_twice() -> bool:
        refused = client.look("failing").refused
        return refused.keys() == wanted and min(refused.values()) > 1

    eventually(has_refused_all_twice, "all messages refused twice")
    failed = client.look("failing")
    client.limit("failing", 2**62)
    eventually(lambda: len(client.look("failing").messages) >= len(wanted), "all refused messages taken")
    return failed


@pytest.mark.parametrize("name", FLOWS)
def test_a_consumer_receives_what_was_recorded(run: Run, name: str) -> None:
    records = expected(run.store, FLOWS[name])
    assert shown(run.consumed[name]) == as_stored(records, is_old_client=run.is_old_client)
    assert run.consumed[name].refused == {}


def test_a_pull_consumer_learns_what_was_recorded(run: Run) -> None:
    recorded = (FLOWS_FOLDER / "pull.txt").read_text().splitlines()
    assert run.pulled == [line for line in recorded if line.startswith("PULL\t")]


@pytest.mark.parametrize("name", [name for name, flow in FLOWS.items() if flow.kind != "broadcasting"])
def test_the_server_remembers_how_far_a_consumer_came(run: Run, name: str) -> None:
    """At least past its last message; a later pull commits that it is past the messages filtered out after that one."""
    flow = FLOWS[name]
    last: dict[int, int] = {}
    for record in expected(run.store, flow):
        last[record.queue_id] = max(last.get(record.queue_id, 0), record.queue_offset + 1)
    for queue_id, end in ends(run.store, flow.topic).items():
        committed = run.stage.committed(run.group(name), flow.topic, queue_id)
        assert last.get(queue_id, 0) <= (committed or 0) <= end


@pytest.mark.parametrize("name", [*FLOWS, "failing"])
def test_a_consumer_at_the_end_of_its_queues_waits_for_an_answer(run: Run, name: str) -> None:
    flow = FAILING if name == "failing" else FLOWS[name]
    members = 2 if flow.kind == "broadcasting" else 1
    queues = len(ends(run.store, flow.topic)) + 1
    assert len(run.stage.pulls(run.group(name))) <= PULLS_OF_A_QUEUE * queues * members


def test_messages_that_a_consumer_refuses_stay_with_it_until_it_takes_them(run: Run) -> None:
    if run.failing is None:
        pytest.skip("a broker that can write takes refused messages back")
    records = expected(run.store, FAILING)
    assert run.failing.messages == []
    refused = run.consumed["failing"].refused
    messages = as_stored(records, is_old_client=run.is_old_client)
    counted = [each | {"reconsumeTimes": refused[each["queueId"], each["queueOffset"]]} for each in messages]
    assert shown(run.consumed["failing"]) == counted
    ended = {record.queue_id: record.queue_offset + 1 for record in records}
    committed = {queue_id: run.stage.committed(run.group("failing"), FAILING.topic, queue_id) for queue_id in ended}
    assert committed == ended


def test_refused_messages_sent_back_are_answered_that_the_server_is_read_only(run: Run) -> None:
    if run.failing is None:
        pytest.skip("a broker that can write takes refused messages back")
    sent_back = run.stage.requests(run.group("failing"), CONSUMER_SEND_MSG_BACK)
    assert len(sent_back) == sum(run.consumed["failing"].refused.values())
    answers = run.stage.answers(run.group("failing"), CONSUMER_SEND_MSG_BACK)
    assert len(answers) == len(sent_back)
    assert {answer.code for answer in answers} == {NO_PERMISSION}
    assert all("read-only" in answer.header["remark"] for answer in answers)


@pytest.mark.parametrize("topic", ["TopicTest", "TopicBatch", "NoSuchTopic"])
def test_a_producer_finds_nowhere_to_send_to(run: Run, topic: str) -> None:
    if not run.stage.is_read_only:
        pytest.skip("it would write")
    asked = len(run.stage.proxy.passed)
    with pytest.raises(JavaError, match="No route info of this topic"):
        run.client.send(run.stage.name_server, topic)
    codes = {passed.frame.code for passed in run.stage.proxy.passed[asked:] if passed.to_server}
    assert not codes & SENDS


def test_a_producer_that_insists_on_a_queue_is_told_that_the_server_is_read_only(run: Run) -> None:
    if not run.stage.is_read_only:
        pytest.skip("it would write")
    with pytest.raises(JavaError, match=r"MQBrokerException.*CODE: 16.*this broker is read-only"):
        run.client.send(run.stage.name_server, "TopicTest", 0)


NOTHING_FOUND = "CODE: 208"
SENDERS = ("5.5.0-binary", "4.9.8")
"""Both versions and both forms; the others are for `make soak`, and so are other pairs of a store and a place."""

STORES = ("g1", "g2-hosts", "g2-queues", "g2-ext")
IN_IDS, ELSEWHERE = "on-the-address-in-the-id", "elsewhere"
SOME_PLACES = {("g1", IN_IDS), ("g2-hosts", IN_IDS), ("g2-queues", ELSEWHERE)}
OBJECTS = ("admin", "producer", "consumer")
"""All three classes have the methods; they take turns."""


def cases(every, some):
    """All parameters, those that are not among `some` for `make soak`."""
    return [pytest.param(each, marks=[] if each in some else pytest.mark.soak) for each in every]


@pytest.fixture(
    scope="module", params=cases(product(STORES, (IN_IDS, ELSEWHERE)), SOME_PLACES), ids=lambda place: "-".join(place)
)
def where(request, java, tmp_path_factory):
    name, place = request.param
    store, work = stored(name, tmp_path_factory.mktemp(name)), tmp_path_factory.mktemp("site")
    with site(store.root, work, *store.options, in_ids=place == IN_IDS, hosts=store.hosts) as running:
        yield store, running
        java.disconnect(running.name_server)


@pytest.fixture(params=cases(CLIENTS, SENDERS))
def client(request, java):
    return java(*CLIENTS[request.param])


@pytest.fixture(params=cases((name for name in CLIENTS if name.startswith(OLD_CLIENT_VERSION)), SENDERS))
def old_client(request, java):
    """One that still has ``viewMessage(id)``, which went with 5.3."""
    return java(*CLIENTS[request.param])


def test_every_offset_message_id_is_viewed(where, client) -> None:
    store, server = where
    for (offset_id, produced), kind in zip(store.with_offset_ids, cycle(OBJECTS), strict=False):
        server.forget()
        message = client.view(server.name_server, kind, offset_id, produced.topic)
        how = {"is_old_client": client.version == OLD_CLIENT_VERSION, "by_unique_key_query": not server.is_in_ids}
        expected = as_java_shows(store.at(offset_id), **how)
        assert comparable(message) == expected, produced
        assert server.lookups() == [VIEW_MESSAGE_BY_ID if server.is_in_ids else QUERY_MESSAGE], produced


def test_every_unique_key_is_viewed_by_a_query(where, client) -> None:
    store, server = where
    for produced, kind in zip(store.produced, cycle(OBJECTS), strict=False):
        server.forget()
        records = store.with_unique_key(produced.topic, produced.unique_key)
        if not records:
            # Delayed and not delivered, or rolled back: the topic has no such message.
            with pytest.raises(JavaError, match=NOTHING_FOUND):
                client.view(server.name_server, kind, produced.unique_key, produced.topic)
            continue
        message = client.view(server.name_server, kind, produced.unique_key, produced.topic)
        shown = [as_java_shows(record, is_old_client=client.version == OLD_CLIENT_VERSION) for record in records]
        assert comparable(message) in shown, produced
        assert server.lookups() == [QUERY_MESSAGE], produced


def test_every_key_finds_its_messages_and_no_other(where, client) -> None:
    store, server = where
    keys = sorted({(produced.topic, key) for produced in store.produced for key in produced.keys})
    for (topic, key), kind in zip(keys, cycle(OBJECTS), strict=False):
        records = store.with_key(topic, key)
        if not records:
            with pytest.raises(JavaError, match=NOTHING_FOUND):
                client.query(server.name_server, kind, topic, key)
            continue
        found = [comparable(message) for message in client.query(server.name_server, kind, topic, key)]
        shown = [as_java_shows(record, is_old_client=client.version == OLD_CLIENT_VERSION) for record in records[-64:]]
        assert found == shown, (topic, key)


def test_viewing_by_id_alone_needs_the_server_on_the_address_in_the_id(where, old_client) -> None:
    store, server = where
    for (offset_id, _), kind in zip(store.with_offset_ids, cycle(OBJECTS), strict=False):
        server.forget()
        if server.is_in_ids:
            message = old_client.view(server.name_server, kind, offset_id, None)
            assert comparable(message) == as_java_shows(store.at(offset_id), is_old_client=True)
            assert server.lookups() == [VIEW_MESSAGE_BY_ID]
        else:
            with pytest.raises(JavaError, match=r"connect to .*:10911 failed"):
                old_client.view(server.name_server, kind, offset_id, None)
            assert server.lookups() == []


NAMES = {
    "node": ("tag", "lite", "colliding-tag", "sql"),
    # Its hash of a tag outside ASCII is not Java's, so that brokers hold such messages back: no flow "tag".
    "go": ("long-sql", "lite", "colliding-tag", "sql"),
}
"""Flows of one topic, all as push consumers."""
CASES = [(language, name) for language, names in NAMES.items() for name in names]


@pytest.fixture(scope="module")
def consumed(store, stage, tmp_path_factory):
    found = {}
    with contextlib.ExitStack() as stack:
        started = {}
        for language, names in NAMES.items():
            groups = {f"CG_{language}_{name}": FLOWS[name].filter for name in names}
            work = tmp_path_factory.mktemp(language)
            consumers = other_consumers(language, stage.name_server, "TopicTest", groups, work)
            started[language] = stack.enter_context(consumers)
        for language, name in CASES:
            drained = partial(other_has_drained, store, stage, started[language], name, f"CG_{language}_{name}")
            eventually(drained, f"{name} on {language} at the end of its queues")
        for language, running in started.items():
            running.stop()
            found |= {(language, name): running.messages(f"CG_{language}_{name}") for name in NAMES[language]}
    return found


def other_has_drained(store, stage, running, name, group) -> bool:
    assert running.process.poll() is None, running.errors.read_text()[-4000:]
    if not stage.has_asked_for_more(group, "TopicTest", ends(store, "TopicTest")):
        return False
    return len(running.messages(group)) >= len(expected(store, FLOWS[name]))


@pytest.mark.parametrize(("language", "name"), CASES)
def test_a_consumer_that_is_not_java_receives_what_was_recorded(store, consumed, language, name) -> None:
    found = sorted(consumed[language, name], key=lambda message: (message["queueId"], message["queueOffset"]))
    compared = [{field: text for field, text in message.items() if field != "group"} for message in found]
    assert compared == [as_told(record) for record in expected(store, FLOWS[name])]


def as_told(record):
    return {
        "topic": record.topic, "queueId": record.queue_id, "queueOffset": record.queue_offset,
        "uniqueKey": record.properties["UNIQ_KEY"], "offsetMessageId": record.offset_message_id,
        "keys": record.properties["KEYS"], "tags": record.properties["TAGS"], "body": unpacked_body(record)
    }  # fmt: skip
