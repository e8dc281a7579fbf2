"""`rocketlens replay` into official brokers: what their consumers get is what the source holds."""

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest

from acl_file import ADMIN, ADMIN_SECRET, READER, READER_SECRET, signed_fields
from blocking_client import eventually
from golden.record.records import walk
from interop.jars import LIBRARY_VERSIONS, NEWEST_BROKER_VERSION, OLD_BROKER_VERSION, SERVER_VERSION
from interop.java_client import Subscription
from interop.official_broker import OfficialProcess, official_broker, official_name_server
from interop.stored import comparable
from interop.wire import ask
from process import rocketlens
from replayed_stores import write_every_kind
from store_writer import StoreWriter, appended, closed_store

pytestmark = pytest.mark.interop

UPDATE_TOPIC, UPDATE_GROUP = 17, 200
PROPERTIES = {"autoCreateTopicEnable": "false", "mappedFileSizeCommitLog": "67108864"}
PROPERTIES["waitTimeMillsInSendQueue"] = "60000"
ORIGIN = "ROCKETLENS_ORIGIN"
SET_ANEW = {"CLUSTER", "MSG_REGION", "TRACE_ON", "MIN_OFFSET"}
"""What the target's broker, or its client, gives each message."""


@dataclass
class Target:
    name_server: OfficialProcess
    broker: OfficialProcess
    store: Path
    work: Path
    version: str

    def make_topic(self, name: str, queues: int = 4, perm: int = 6, keys: tuple[str, str] | None = None) -> None:
        fields = {"topic": name, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues}
        fields |= {"perm": perm, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}
        texts = {name: str(value) for name, value in fields.items()}
        answer = ask(self.broker.address, UPDATE_TOPIC, texts if keys is None else signed_fields(texts, *keys))
        assert answer.code == 0, answer.header

    @property
    def arguments(self) -> tuple[str, ...]:
        return "--to", self.name_server.text_address

    def messages(self):
        return list(walk([self.store / "commitlog"]))


OTHER_VERSIONS = [pytest.param(each, marks=pytest.mark.soak) for each in (NEWEST_BROKER_VERSION, OLD_BROKER_VERSION)]


@pytest.fixture(scope="module", params=[SERVER_VERSION, *OTHER_VERSIONS])
def target(request, tmp_path_factory):
    work = tmp_path_factory.mktemp("target")
    version = str(request.param)
    if version == SERVER_VERSION:
        stock = request.getfixturevalue("stock")
        yield Target(stock.pair.name_server, stock.pair.broker, stock.store, work, version)
        return
    with (
        # Of 5.5.1 there is none.
        official_name_server(work, version=LIBRARY_VERSIONS.get(version, version)) as name_server,
        official_broker(
            work / "store", work, properties=PROPERTIES, name_server=name_server, version=version
        ) as broker,
    ):
        yield Target(name_server, broker, work / "store", work, version)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    root = tmp_path_factory.mktemp("every-kind") / "store"
    return root, write_every_kind(root)


def test_consumers_get_every_kind_of_message_as_it_was(java, target, source, tmp_path) -> None:
    root, expected = source
    topics = sorted({each.topic for each in expected})
    for topic in topics:
        target.make_topic(topic)
    name_server = target.name_server.text_address
    client = java(SERVER_VERSION, "JSON")
    # A group that has a retry topic there, as one that has consumed.
    consumers = {topic: Subscription("push", f"g{number}", topic) for number, topic in enumerate(topics)}
    client.consume(name_server, consumers)
    account = tmp_path / "account"
    arguments = (root, "--since", "0", "--copies", "--to-origin", *target.arguments, "--account", account)
    eventually(lambda: all(client.look(topic).queues for topic in topics), "all consumers have queues")
    outcome = rocketlens("replay", *arguments, "--go", "--verify", "--json")
    # Topics of the broker's own are refused.
    assert outcome.returncode == 1, outcome.stderr
    assert b"is the broker's own" in outcome.stderr
    wanted = Counter(each.key for each in expected)

    def consumed():
        return {topic: [comparable(each) for each in client.look(topic).messages] for topic in topics}

    def missing() -> Counter[str]:
        return wanted - Counter(each["messageId"] for messages in consumed().values() for each in messages)

    eventually(lambda: not missing(), "all messages are consumed")
    found = consumed()
    assert Counter(each["messageId"] for messages in found.values() for each in messages) == wanted
    by_key = {each["messageId"]: each for messages in found.values() for each in messages}
    for each in expected:
        got = by_key[each.key]
        own = {name: value for name, value in got["properties"].items() if name in each.properties}
        assert (got["topic"], got["body"], got["flag"], own) == (each.topic, each.body, each.flag, each.properties)
        assert got["properties"][ORIGIN].split(" ")[0] == each.offset_message_id
        assert not (each.left_behind - SET_ANEW) & set(got["properties"])
        assert got["properties"].get("CLUSTER") != "old"
    client.disconnect(name_server)
    # In the log of the target each queue of the source is in its order.
    order = defaultdict(list)
    for record in target.messages():
        if record.topic in topics and ORIGIN in record.properties:
            order[record.topic, record.queue_id].append(record.properties["UNIQ_KEY"])
    ordered = defaultdict(list)
    for each in expected:
        if each.is_in_order:
            ordered[each.topic, each.queue_id % 4].append(each.key)
    for place, keys in ordered.items():
        assert [key for key in order[place] if key in set(keys)] == keys


def test_dead_letters_go_to_the_group_that_failed_alone(java, target, tmp_path) -> None:
    writer = StoreWriter(tmp_path / "store")
    for number in range(3):
        properties = {"RETRY_TOPIC": "Failing", "DLQ_ORIGIN_TOPIC": "Failing", "ORIGIN_MESSAGE_ID": f"{number:032X}"}
        more = {"unique_key": f"DEAD{number:028X}", "reconsume_times": 16}
        writer.append("%DLQ%fails", b"%d" % number, properties=properties, **more)
    writer.close()
    arguments = ("replay", tmp_path / "store", "--dlq", "fails", *target.arguments, "--account", tmp_path / "account")
    outcome = rocketlens(*arguments, "--go")
    assert (outcome.returncode, b"there is no default" in outcome.stderr) == (1, True), outcome.stderr
    arguments = (*arguments, "--to-retry", "--fresh")
    outcome = rocketlens(*arguments, "--go")
    assert (outcome.returncode, b"the group fails does not exist there" in outcome.stderr) == (1, True), outcome.stderr
    target.make_topic("Failing")
    client, name_server = java(SERVER_VERSION, "JSON"), target.name_server.text_address
    consumers = {name: Subscription("push", name, "Failing", route_millis=300) for name in ("fails", "other")}
    client.consume(name_server, consumers)
    eventually(lambda: "%RETRY%fails" in topics_of(target), "the group has a retry topic")
    outcome = rocketlens(*arguments, "--go")
    assert outcome.returncode == 0, outcome.stderr
    eventually(lambda: len(client.look("fails").messages) == 3, "the dead letters are consumed")
    consumed = client.end("fails", "other")
    assert sorted(each["messageId"] for each in consumed["fails"].messages) == [f"DEAD{n:028X}" for n in range(3)]
    assert {each["topic"] for each in consumed["fails"].messages} == {"Failing"}
    assert not consumed["other"].messages
    client.disconnect(name_server)


def topics_of(target: Target) -> str:
    return ask(target.name_server.address, 206).body.decode()


def big_source(root: Path, count: int, topic: str = "Killed") -> list[str]:
    writer = StoreWriter(root, segment_size=1 << 26, index_slots=5_000_000, index_entries=20_000_000)
    keys = [f"B16{number:029X}" for number in range(count)]
    for number, key in enumerate(keys):
        writer.append(topic, b"%d" % number * 20, unique_key=key, queue_id=number % 4, keys=f"k{number}")
    writer.close()
    return keys


def judge(target, keys, outcome, topic="Killed") -> None:
    """Each message is in the target's log, whatever is there twice was named, and all was seen."""
    said = json.loads(outcome.stdout.splitlines()[-1])
    print(said)  # for who runs this by hand
    counts = Counter(record.properties.get("UNIQ_KEY", "") for record in target.messages() if record.topic == topic)
    assert [key for key in keys if not counts[key]] == []
    assert sum(count > 1 for count in counts.values()) == said["double"]
    assert said["sent"] == said["verified"] + said["double"] == len(keys)
    assert said["missing"] == said["different"] == said["unknown"] == said["planned"] == said["refused"] == 0


@pytest.mark.soak  # in each run: what a killed run had not noted, tests/rocketlens/replay/test_sending.py
def test_a_run_that_is_killed_goes_on(target: Target, tmp_path: Path) -> None:
    topic, times = "KilledOften", 20
    keys = big_source(tmp_path / "store", 60_000, topic)
    target.make_topic(topic)
    account = tmp_path / "account"
    arguments = ("replay", tmp_path / "store", "--topic", topic, *target.arguments, "--account", account, "--go")
    drawn = random.Random(times)
    for _ in range(times):
        command = [sys.executable, "-m", "rocketlens", *map(str, arguments)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(drawn.uniform(0.8, 4))
        process.send_signal(signal.SIGKILL)
        process.wait()
    outcome = rocketlens(*arguments, "--verify", "--json")
    assert outcome.returncode == 0, outcome.stderr
    judge(target, keys, outcome, topic)


@pytest.mark.soak
def test_a_broker_that_is_killed_loses_nothing_that_counts(tmp_path: Path) -> None:
    keys = big_source(tmp_path / "source", 60_000)
    drawn = random.Random(4)
    properties = PROPERTIES | {"flushDiskType": "SYNC_FLUSH"}
    with official_name_server(tmp_path) as name_server:
        store, port = tmp_path / "store", None
        account = tmp_path / "account"
        where = ("--to", name_server.text_address, "--account", account)
        arguments = ("replay", tmp_path / "source", "--topic", "Killed", *where)
        process = None
        for _ in range(20):
            with official_broker(store, tmp_path, properties=properties, name_server=name_server, port=port) as broker:
                port = broker.address[1]
                target = Target(name_server, broker, store, tmp_path, SERVER_VERSION)
                target.make_topic("Killed")
                eventually(lambda: "Killed" in topics_of(target), "the name server has the topic")  # noqa: B023
                if process is None or process.poll() is not None:
                    command = [sys.executable, "-m", "rocketlens", *map(str, arguments), "--go", "--rate", "1500"]
                    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
                time.sleep(drawn.uniform(0.5, 3))
                broker.kill()
        process.wait(120)  # it gives up: nobody answers
        with official_broker(store, tmp_path, properties=properties, name_server=name_server, port=port) as broker:
            target = Target(name_server, broker, store, tmp_path, SERVER_VERSION)
            outcome = rocketlens(*arguments, "--go", "--verify", "--json")
            judge(target, keys, outcome)


OF_AUTH = "org.apache.rocketmq.auth"
ACCOUNT_OF_BROKER = json.dumps({"accessKey": ADMIN, "secretKey": ADMIN_SECRET})
AUTHENTICATION = {
    "authenticationEnabled": "true",
    "authenticationProvider": f"{OF_AUTH}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{OF_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
    "initAuthenticationUser": json.dumps({"username": ADMIN, "password": ADMIN_SECRET}),
    "innerClientAuthenticationCredentials": ACCOUNT_OF_BROKER,
    "authorizationEnabled": "true",
    "authorizationProvider": f"{OF_AUTH}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": f"{OF_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
}
"""How a broker 5.5 is told to have accounts, of which this one may do everything."""

AUTH_CREATE_USER = 3001


@pytest.mark.soak
def test_a_target_with_accounts_and_tls_takes_what_the_right_account_sends(tmp_path: Path) -> None:
    keys = [f"GUARD{number:027X}" for number in range(5)]
    closed_store(tmp_path / "source", *(appended("Guarded", key.encode(), unique_key=key) for key in keys))
    signed = signed_fields({}, ADMIN, ADMIN_SECRET)
    with (
        official_name_server(tmp_path, tls=True) as name_server,
        official_broker(
            tmp_path / "store", tmp_path, properties=PROPERTIES | AUTHENTICATION, name_server=name_server,
            asked_with=signed, tls=True,
        ) as broker,
    ):  # fmt: skip
        target = Target(name_server, broker, tmp_path / "store", tmp_path, SERVER_VERSION)
        target.make_topic("Guarded", keys=(ADMIN, ADMIN_SECRET))
        user = json.dumps({"username": READER, "password": READER_SECRET, "userType": "Normal"}).encode()
        asked = signed_fields({"username": READER}, ADMIN, ADMIN_SECRET, user)
        assert ask(broker.address, AUTH_CREATE_USER, asked, body=user).code == 0
        eventually(lambda: "Guarded" in topics_of(target), "the name server has the topic")

        deadline = time.monotonic() + 120

        def replay(name: str, access_key: str, secret: str) -> "subprocess.CompletedProcess[bytes]":
            keys = tmp_path / f"{name}.yml"
            keys.write_text(f"accessKey: {access_key}\nsecretKey: {secret}\n")
            what = ("replay", tmp_path / "source", "--topic", "Guarded", *target.arguments, "--go", "--json")
            with_keys = ("--to-credentials", keys, "--tls-no-verify", "--account", tmp_path / name)
            while True:
                found = rocketlens(*what, *with_keys)
                # Java's first handshakes may take longer than a connection is waited for.
                if b"cannot connect" not in found.stderr or time.monotonic() > deadline:
                    return found

        for name, access_key, secret in (("wrong", ADMIN, "no-such-secret"), ("other", READER, READER_SECRET)):
            refused = replay(name, access_key, secret)
            said = json.loads(refused.stdout.splitlines()[-1])
            assert (refused.returncode, said["planned"], said["sent"]) == (3, 5, 0), (refused.stderr, said)
            assert b"NO_PERMISSION" in refused.stderr
        assert not any(record.topic == "Guarded" for record in target.messages())
        sent = replay("right", ADMIN, ADMIN_SECRET)
        assert sent.returncode == 0, sent.stderr
        keys = sorted(each.properties["UNIQ_KEY"] for each in target.messages() if each.topic == "Guarded")
        assert keys == [f"GUARD{number:027X}" for number in range(5)]
