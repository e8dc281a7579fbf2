"""Official Java clients, 5.x and 4.9, JSON and binary headers, find every produced message of every recorded store."""

from itertools import cycle, product

import pytest

from interop.jars import OLD_CLIENT_VERSION, SERVER_VERSION
from interop.java_client import JavaError
from interop.sites import QUERY_MESSAGE, VIEW_MESSAGE_BY_ID, site
from interop.stored import as_java_shows, comparable, stored

pytestmark = pytest.mark.interop

NOTHING_FOUND = "CODE: 208"
FORMS = {"": "JSON", "-binary": "ROCKETMQ"}
VERSIONS = (SERVER_VERSION, OLD_CLIENT_VERSION)
CLIENTS = {f"{version}{name}": (version, form) for version in VERSIONS for name, form in FORMS.items()}
SOME_CLIENTS = ("5.5.0-binary", "4.9.8")
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


@pytest.fixture(params=cases(CLIENTS, SOME_CLIENTS))
def client(request, java):
    return java(*CLIENTS[request.param])


@pytest.fixture(params=cases((name for name in CLIENTS if name.startswith(OLD_CLIENT_VERSION)), SOME_CLIENTS))
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
