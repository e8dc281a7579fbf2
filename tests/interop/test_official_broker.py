"""The official broker on a copy of g1: proves harness and comparison (`make soak`), and answers our client."""

import shutil

import pytest

import rocketlens
from command_line import rocketlens as command
from interop.jars import OLD_CLIENT_VERSION, SERVER_VERSION
from interop.normalise import normalise, read_cases
from interop.official_broker import official_pair
from interop.sites import STORE_PORT, expect_free
from interop.stored import as_java_shows, comparable

pytestmark = pytest.mark.interop

WINDOW_FROM_NOW = {"queryMsgById-unique", "queryMsgByUniqueKey", "queryMsgByUniqueKey-all"}
LATER = {"consumerProgress-g", "consumerProgress-gt"}
CASES = [case for case in read_cases() if case.name not in WINDOW_FROM_NOW | LATER]


@pytest.fixture(scope="module")
def official(store, tmp_path_factory):
    expect_free("127.0.0.1")
    work = tmp_path_factory.mktemp("official")
    copy = work / "g1"
    shutil.copytree(store.root, copy)
    with official_pair(copy, work, port=STORE_PORT) as pair:
        yield pair


@pytest.mark.soak
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_broker_still_prints_what_was_recorded(java, official, case) -> None:
    name_server = official.name_server.text_address
    printed = java(SERVER_VERSION, "JSON").mqadmin(*case.arguments.split(), "-n", name_server)
    assert normalise(case.arguments, printed) == normalise(case.arguments, case.printed)


@pytest.mark.soak  # in each run: test_java_client.py, at our server
@pytest.mark.parametrize("version", [SERVER_VERSION, OLD_CLIENT_VERSION])
def test_java_shows_the_brokers_messages_as_our_server_must_send_them(java, official, store, version) -> None:
    client, name_server = java(version, "JSON"), official.name_server.text_address
    is_old = version == OLD_CLIENT_VERSION
    for offset_id, produced in store.with_offset_ids:
        message = client.view(name_server, "admin", offset_id, produced.topic)
        assert comparable(message) == as_java_shows(store.at(offset_id), is_old_client=is_old)
    for topic, key in sorted({(produced.topic, key) for produced in store.produced for key in produced.keys}):
        if records := store.with_key(topic, key):
            found = [comparable(message) for message in client.query(name_server, "admin", topic, key)]
            # The broker repeats a message that has the same key twice; our server does not.
            distinct = [message for number, message in enumerate(found) if message not in found[:number]]
            assert distinct == [as_java_shows(record, is_old_client=is_old) for record in records[-64:]]
    client.disconnect(name_server)


def test_our_command_views_an_id_on_the_official_broker(stock, store) -> None:
    official, known = stock.pair, [offset_id for offset_id, _ in store.with_offset_ids][:3]
    ids = [f"{each[:8]}{official.broker.address[1]:08X}{each[16:]}" for each in known]
    outcome = command("find", "--from-id", *ids, "--as", "offset-id", "--json")
    assert outcome.code == 0, outcome.errors
    assert [message["offsetMessageId"] for message in outcome.messages] == known
    absent = command("find", official.broker.text_address, f"{ids[0][:16]}00000000000FFFFF", "--as", "offset-id")
    assert (absent.code, absent.output, "1048575" in absent.errors) == (1, b"", True)


def identity(message: rocketlens.Message) -> tuple[str, str, int, int, str | None, bytes]:
    place = message.topic, message.queue_id, message.queue_offset
    return (message.offset_message_id, *place, message.unique_key, message.body)


@pytest.mark.parametrize("asked", ["name server", "broker"])
def test_the_public_face_finds_on_the_official_broker_what_it_finds_in_the_store(stock, store, asked) -> None:
    server = stock.pair.name_server if asked == "name server" else stock.pair.broker
    with rocketlens.open(stock.store) as local, rocketlens.connect(server.text_address) as remote:
        for offset_id, produced in store.with_offset_ids:
            assert [*map(identity, remote.view(offset_id))] == [*map(identity, local.view(offset_id))] != []
            options = {"unique_key": produced.unique_key}
            found, there = (each.query(produced.topic, **options) for each in (local, remote))
            assert [*map(identity, there)] == [*map(identity, found)]
        assert not remote.query("TopicTest", key="nosuchkey")
        there, here = ([*map(identity, each.query("TopicTest", tag="TagB"))] for each in (remote, local))
        assert there == here != []
        for produced in store.produced:
            for key in produced.keys:
                of_store = local.query(produced.topic, key=key)
                assert [*map(identity, remote.query(produced.topic, key=key))] == [*map(identity, of_store)]
        for text in ("hotkey", "BB", "6581", store.with_offset_ids[0][0]):
            assert {*map(identity, remote.find(text))} == {*map(identity, local.find(text))} != set()
        found = {message.offset_message_id for message in remote.search(topic="TopicTest", contains="hot")}
        assert found == {message.offset_message_id for message in local.search(topic="TopicTest", contains="hot")}
        assert len(found) == 40
        if asked == "name server":  # which knows the names of topics alone
            return
        topics = {topic.name: topic.read_queues for topic in remote.topics()}
        known = {(topic.name, topic.read_queues) for topic in local.topics() if topic.name.startswith("Topic")}
        assert known <= {*topics.items()}
        groups = {group.name: group.offsets for group in remote.groups()}
        assert groups["CG_TAG"] == next(group.offsets for group in local.groups() if group.name == "CG_TAG")


@pytest.mark.parametrize("options", [{}, {"tag": "TagA || Aa"}, {"sql": "a > 10 AND a <= 30 AND region = 'hz'"}])
def test_the_public_face_pulls_from_the_official_broker_what_it_pulls_from_the_store(stock, options) -> None:
    with rocketlens.open(stock.store) as local, rocketlens.connect(stock.pair.broker.text_address) as remote:
        groups = [group.name for group in remote.groups()]
        for queue_id in range(4):
            sources = (local, remote)
            assert [*pulled(sources[1], queue_id, options)] == [*pulled(sources[0], queue_id, options)]
        assert [group.name for group in remote.groups()] == groups
        assert not remote.pull("TopicTest", 99, 0)
        assert not remote.pull("NoSuchTopic", 0, 0)


def pulled(source, queue_id, options):
    offset, end = 0, 1
    while offset < end:
        found = source.pull("TopicTest", queue_id, offset, **options)
        yield from map(identity, found)
        offset, end = found.next_offset, found.max_offset
