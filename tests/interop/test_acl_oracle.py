"""Who is admitted, our gRPC messages and our tables of system names, beside what the official jars say of each.

A constant that a newer RocketMQ brings fails here until somebody has said in the tables what it means.
"""

import base64
import itertools
import json
import os
import re
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FileDescriptorProto, FileDescriptorSet

import acl_file
from asking import FakeConnection
from broker.endpoint import Endpoint
from broker.grpc.message_conversion import message_of
from broker.grpc.messages import definition_pb2, service_pb2
from broker.grpc.messages.definition_pb2 import Message
from broker.security._address_patterns import parse_address_pattern
from broker.security.accounts import load_accounts
from broker.security.guard import Guard
from broker.security.watched_files import Watched
from golden_store import G1, GOLDEN, unpack
from heartbeats import consumer, heartbeat, subscription
from interop.jars import NEWEST_BROKER_VERSION, OLD_CLIENT_VERSION, SERVER_VERSION, cached, compiled, jars
from interop.java_client import SMALL_JVM
from interop.other_clients import bring_proxy
from needed_tools import tool
from protocol import system_topics
from protocol.codes import RequestCode
from protocol.command import Response, decode_command, encode_request
from protocol.frame import FrameDecoder
from protocol.message import decode_messages
from protocol.system_properties import SYSTEM_PROPERTIES
from storage.files.waiting import finish

pytestmark = pytest.mark.interop

SAMPLE, SAMPLE_SECRET = "sample-key", "sample-secret"
SAMPLE_ACCOUNT = f"""
  - accessKey: {SAMPLE}
    secretKey: {SAMPLE_SECRET}
    # if it is admin, it could access all resources
    admin: true
"""
"""As the file says it that comes with a broker 4.9."""

SOURCE = Path(__file__).with_name("AclOracle.java")


@pytest.fixture(scope="module")
def acl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("home") / "conf" / "plain_acl.yml"
    path.parent.mkdir()
    acl_file.write_accounts(path, acl_file.PLAIN_ACL + SAMPLE_ACCOUNT)
    return path


@pytest.fixture(scope="module")
def ask(acl):
    home = acl.parent.parent
    folder = jars(OLD_CLIENT_VERSION)
    class_path = f"{folder}/*{os.pathsep}{compiled(folder, SOURCE)}"
    command = [tool("java"), *SMALL_JVM, f"-Drocketmq.home.dir={home}", f"-Duser.home={home}"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([*command, "-cp", class_path, "AclOracle"], **pipes, text=True) as process:

        def question(value) -> str:
            process.stdin.write(json.dumps(value) + "\n")
            process.stdin.flush()
            return str(process.stdout.readline().strip())

        yield question
        process.kill()


HEARTBEAT = heartbeat("c", consumer("readers", subscription("TopicTest"), subscription("%RETRY%readers")))
QUERY = {"key": "k", "maxNum": "1", "beginTimestamp": "0", "endTimestamp": "1"}
PULL = {"queueId": "0", "queueOffset": "0", "maxMsgNums": "1", "sysFlag": "0", "commitOffset": "0"}
PULL |= {"suspendTimeoutMillis": "0", "subVersion": "0"}
COMMIT = {"queueId": "0", "commitOffset": "5"}
TOPICS = ("TopicTest", "both", "mine", "denied", "unheard", "%RETRY%readers", "%RETRY%others")
GROUPS = ("readers", "deniedGroup", "others")


def requests():
    for topic in TOPICS:
        yield RequestCode.QUERY_MESSAGE, {"topic": topic, **QUERY}, b""
    for topic, group in itertools.product(TOPICS, GROUPS):
        yield RequestCode.PULL_MESSAGE, {"topic": topic, "consumerGroup": group, **PULL}, b""
        yield RequestCode.UPDATE_CONSUMER_OFFSET, {"topic": topic, "consumerGroup": group, **COMMIT}, b""
    for group in GROUPS:
        yield RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group}, b""
        yield RequestCode.UNREGISTER_CLIENT, {"clientID": "c", "consumerGroup": group}, b""
        yield RequestCode.HEART_BEAT, {}, HEARTBEAT.replace(b"readers", group.encode())
    yield RequestCode.HEART_BEAT, {}, HEARTBEAT.replace(b"TopicTest", b"denied")
    yield RequestCode.HEART_BEAT, {}, HEARTBEAT.replace(b"TopicTest", b"unheard")


NAMES = (acl_file.READER, acl_file.ADMIN, acl_file.DEFAULTS, acl_file.BOUNDED, acl_file.WHITE)
KEYS = [
    *zip(NAMES, acl_file.SECRETS, strict=True),
    (acl_file.READER, acl_file.ADMIN_SECRET),
    ("nobody-key", acl_file.READER_SECRET),
]
HOSTS = ("127.0.0.1", "10.10.103.77", "192.168.0.7", "192.168.0.9", "172.16.3.4")


def test_the_same_requests_are_admitted(acl, ask) -> None:
    guard = Guard(Watched("accounts", [acl], lambda: load_accounts(acl)))
    admitted = 0
    for (code, fields, body), (access_key, secret) in itertools.product(requests(), KEYS):
        frame = acl_file.signed_request(code, fields, access_key, secret, body)
        for host in HOSTS if code == RequestCode.QUERY_MESSAGE else HOSTS[:1]:
            admitted += _compare(guard, ask, frame, host)
    assert admitted > 100
    # Unsigned, or changed on the way.
    asked, code = {"topic": "TopicTest", **QUERY}, RequestCode.QUERY_MESSAGE
    forged = [
        *(encode_request(code, asked | more, opaque=1) for more in ({}, {"AccessKey": acl_file.READER})),
        encode_request(code, asked | {"AccessKey": acl_file.READER, "Signature": ""}, opaque=1),
        acl_file.signed_request(code, asked, acl_file.READER, acl_file.READER_SECRET).replace(
            b'"maxNum":"1"', b'"maxNum":"2"'
        ),
    ]
    for frame, host in itertools.product(forged, HOSTS):
        _compare(guard, ask, frame, host)


def test_the_same_requests_of_administrators_without_lists_are_admitted_if_that_is_asked_for(acl, ask) -> None:
    guard = Guard(Watched("accounts", [acl], lambda: load_accounts(acl, admin_has_all=True)))
    keys = ((SAMPLE, SAMPLE_SECRET), (acl_file.BOUNDED, acl_file.BOUNDED_SECRET))
    asked = itertools.product(requests(), keys)
    frames = (acl_file.signed_request(code, fields, *each, body) for (code, fields, body), each in asked)
    admitted = [_compare(guard, ask, frame, HOSTS[0]) for frame in frames]
    assert (all(admitted[::2]), all(admitted[1::2])) == (True, False)


def _compare(guard, ask, frame, host) -> bool:
    expected = ask({"frame": base64.b64encode(frame).decode(), "host": host})
    (whole,) = FrameDecoder().feed(frame)
    answer = finish(guard.admit(decode_command(whole), FakeConnection(peer_address=Endpoint(host, 4711))))
    is_admitted = not isinstance(answer, Response)
    assert is_admitted == (expected == "admitted"), (frame, host, expected, answer)
    return is_admitted


LONG = "1050:0000:0000:0000:0005:0600:300c"
PATTERNS = [
    *("*", "*.*.*.*", "", "127.0.0.1", "127.0.0.1,127.0.0.2", "127.0.0.{1,2}", "127.0.0.*", "127.0.*.*"),
    *("127.0.1-9.*", "127.0.0.1-3", "10.0.0.1"),
    *(f"{LONG}:{end}" for end in ("326b", "1-200", "*", "{1,2,326b}")),
]
ADDRESSES = ["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.5.1", "127.1.0.1", "10.0.0.1"]
ADDRESSES += [f"{LONG}:326b", f"{LONG}:0001"]


def test_patterns_mean_the_same_addresses(ask) -> None:
    yes = 0
    for pattern, host in itertools.product(PATTERNS, ADDRESSES):
        expected = ask({"pattern": pattern, "host": host})
        assert expected in ("yes", "no"), (pattern, host, expected)
        assert parse_address_pattern(pattern)(host) == (expected == "yes"), (pattern, host)
        yes += expected == "yes"
    assert yes > 30


STORES = (("store", G1), ("store", GOLDEN / "g2" / "g2-queues"), ("store", GOLDEN / "g2" / "g2-hosts"))
MAGICS = (b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab")


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The records of some recorded logs, one behind the other."""
    found = bytearray()
    for number, (name, archives) in enumerate(STORES):
        root = unpack(name, tmp_path_factory.mktemp(f"log-{number}"), archives=archives)
        for path in sorted((root / "commitlog").iterdir()):
            data, at = path.read_bytes(), 0
            while (size := int.from_bytes(data[at : at + 4])) and data[at + 4 : at + 8] in MAGICS:
                found += data[at : at + size]
                at += size
    assert len(found) > 100_000
    return bytes(found)


@pytest.fixture(scope="module")
def told(records: bytes) -> list[bytes]:
    """What Java says: the published descriptors, and a message for each record."""
    jars = cached(f"proxy-{SERVER_VERSION}", bring_proxy)
    classes = compiled(jars, Path(__file__).with_name("GrpcOracle.java"))
    command = [tool("java"), "-cp", f"{jars}/*{os.pathsep}{classes}", "GrpcOracle"]
    output = subprocess.run(command, input=records, capture_output=True, check=True, timeout=120).stdout
    found, at = [], 0
    while at < len(output):
        (size,) = struct.unpack_from(">i", output, at)
        found.append(output[at + 4 : at + 4 + size])
        at += 4 + size
    return found


def members(prefix, messages, enums):
    """Every field and every value by name, with what they are on the wire."""
    for enum in enums:
        assert isinstance(enum, EnumDescriptorProto)
        yield from ((f"{prefix}{enum.name}.{value.name}", (value.number,)) for value in enum.value)
    for message in messages:
        assert isinstance(message, DescriptorProto)
        for field in message.field:
            kind = field.type, field.label, field.type_name, field.proto3_optional, field.HasField("oneof_index")
            yield f"{prefix}{message.name}.{field.name}", (field.number, *kind)
        yield from members(f"{prefix}{message.name}.", message.nested_type, message.enum_type)


def test_names_numbers_and_types_are_those_that_apache_published(told: list[bytes]) -> None:
    published = dict[str, tuple[Any, ...]]()
    for file in FileDescriptorSet.FromString(told[0]).file:
        published.update(members("", file.message_type, file.enum_type))
    ours = dict[str, tuple[Any, ...]]()
    for module in (definition_pb2, service_pb2):
        file = FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        ours.update(members("", file.message_type, file.enum_type))
    assert len(published) > 250
    assert {name: (ours.get(name), kind) for name, kind in published.items() if ours.get(name) != kind} == {}


def test_every_recorded_message_is_converted_as_the_official_proxy_converts_it(told, records) -> None:
    stored = list(decode_messages(records, check_crc=False))
    assert len(stored) == len(told) - 1 > 400
    kinds = set()
    for message, expected in zip(stored, told[1:], strict=True):
        theirs, ours = Message.FromString(expected), message_of(message)
        if "TIMER_DELAY_SEC" in message.properties:
            theirs.system_properties.ClearField("delivery_timestamp")
            ours.system_properties.ClearField("delivery_timestamp")
        ours.system_properties.ClearField("priority")
        assert ours == theirs
        kinds.add(ours.system_properties.message_type)
    assert len(kinds) > 2


CONSTANT = re.compile(r'static final (?:java\.lang\.String|char) (\w+) = ["\'](.*)["\'];')

NO_PROPERTIES = {
    *("KEY_SEPARATOR", "INDEX_KEY_TYPE", "INDEX_UNIQUE_TYPE", "INDEX_TAG_TYPE"),
    *("TIMER_ENGINE_ROCKSDB_TIMELINE", "TIMER_ENGINE_FILE_TIME_WHEEL"),  # values of TIMER_ENGINE_TYPE
    "PROPERTY_TRANSIENT_PREFIX",  # the beginning of two that are there
}
"""Constants of MessageConst that name no property."""


CLASSES = (
    *("common.topic.TopicValidator", "common.message.MessageConst", "common.MixAll", "common.PopAckConstants"),
    *("common.KeyBuilder", "store.timer.TimerMessageStore"),
)


def javap(*arguments: str) -> str:
    path = f"{jars(NEWEST_BROKER_VERSION)}/*"
    command = [tool("javap"), "-p", "-cp", path, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_tables_are_those_of_the_newest_jar() -> None:
    parts = javap("-constants", *(f"org.apache.rocketmq.{name}" for name in CLASSES)).split("Compiled from ")[1:]
    topics, properties, names, pop, separators, timers = (dict(CONSTANT.findall(part)) for part in parts)
    assert len(topics) >= 14
    for name, topic in topics.items():
        row = system_topics.system_topic(topic)
        assert row is not None, name
        assert (row.name, row.is_prefix) == (topic, name.endswith("_PREFIX")), name
    assert {*system_topics.OP_TOPICS, *system_topics.OP_TOPICS.values(), *system_topics.TOPICS_OF_EVERY_BROKER} <= {
        *topics.values()
    }
    assert len(properties) > 70
    assert properties.keys() >= NO_PROPERTIES
    assert {value for name, value in properties.items() if name not in NO_PROPERTIES} == SYSTEM_PROPERTIES.keys()
    known = {
        "RETRY_GROUP_TOPIC_PREFIX": system_topics.RETRY_PREFIX,
        "DLQ_GROUP_TOPIC_PREFIX": system_topics.DEAD_LETTER_PREFIX,
        "LMQ_PREFIX": system_topics.LIGHT_PREFIX, "CID_RMQ_SYS_PREFIX": system_topics.SYSTEM_GROUP_PREFIX,
        "REPLY_TOPIC_POSTFIX": system_topics.REPLY_TOPIC_SUFFIX[1:],
    }  # fmt: skip
    assert {name: names[name] for name in known} == known
    assert pop["REVIVE_TOPIC"] == system_topics.REVIVE_TOPIC_PREFIX
    assert timers["TIMER_TOPIC"] == system_topics.TIMER_TOPIC
    assert separators["POP_RETRY_SEPARATOR_V2"] + separators["POP_RETRY_SEPARATOR_V1"] == system_topics.POP_SEPARATORS


def test_the_topics_that_the_broker_asks_for_their_real_topic_are_those_with_an_origin() -> None:
    """QueryMessageProcessor of 5.5.1 shows their records only to who names the REAL_TOPIC."""
    printed = javap("-c", "org.apache.rocketmq.broker.processor.QueryMessageProcessor")
    initializer = printed[printed.index("static {}") :]
    asked = set(re.findall(r"// String ((?:\w+_)+\w+)$", initializer, re.MULTILINE))
    assert len(asked) == 4
    rows = {row.name for row in system_topics.SYSTEM_TOPICS if row.origin == "REAL_TOPIC"}
    assert asked == rows - {system_topics.ROCKSDB_HALF_TOPIC}, "5.5.1 forgets the half messages of RocksDB"
