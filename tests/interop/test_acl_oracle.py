"""Who is admitted, beside the access validator of RocketMQ 4.9.8, and our gRPC messages beside Apache's."""

import base64
import itertools
import json
import os
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FileDescriptorProto, FileDescriptorSet

from acl_file import (
    ADMIN,
    ADMIN_SECRET,
    BOUNDED,
    BOUNDED_SECRET,
    DEFAULTS,
    PLAIN_ACL,
    READER,
    READER_SECRET,
    SECRETS,
    WHITE,
    signed_request,
    write_accounts,
)
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
from interop.jars import OLD_CLIENT_VERSION, SERVER_VERSION, cached, compiled, jars
from interop.java_client import SMALL_JVM
from interop.official_proxy import bring_proxy
from needed_tools import tool
from protocol.codes import RequestCode
from protocol.command import Response, decode_command, encode_request
from protocol.frame import FrameDecoder
from protocol.message import decode_messages
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
    write_accounts(path, PLAIN_ACL + SAMPLE_ACCOUNT)
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


NAMES = (READER, ADMIN, DEFAULTS, BOUNDED, WHITE)
KEYS = [*zip(NAMES, SECRETS, strict=True), (READER, ADMIN_SECRET), ("nobody-key", READER_SECRET)]
HOSTS = ("127.0.0.1", "10.10.103.77", "192.168.0.7", "192.168.0.9", "172.16.3.4")


def test_the_same_requests_are_admitted(acl, ask) -> None:
    guard = Guard(Watched("accounts", [acl], lambda: load_accounts(acl)))
    admitted = 0
    for (code, fields, body), (access_key, secret) in itertools.product(requests(), KEYS):
        frame = signed_request(code, fields, access_key, secret, body)
        for host in HOSTS if code == RequestCode.QUERY_MESSAGE else HOSTS[:1]:
            admitted += _compare(guard, ask, frame, host)
    assert admitted > 100
    # Unsigned, or changed on the way.
    asked, code = {"topic": "TopicTest", **QUERY}, RequestCode.QUERY_MESSAGE
    forged = [
        *(encode_request(code, asked | more, opaque=1) for more in ({}, {"AccessKey": READER})),
        encode_request(code, asked | {"AccessKey": READER, "Signature": ""}, opaque=1),
        signed_request(code, asked, READER, READER_SECRET).replace(b'"maxNum":"1"', b'"maxNum":"2"'),
    ]
    for frame, host in itertools.product(forged, HOSTS):
        _compare(guard, ask, frame, host)


def test_the_same_requests_of_administrators_without_lists_are_admitted_if_that_is_asked_for(acl, ask) -> None:
    guard = Guard(Watched("accounts", [acl], lambda: load_accounts(acl, admin_has_all=True)))
    keys = ((SAMPLE, SAMPLE_SECRET), (BOUNDED, BOUNDED_SECRET))
    asked = itertools.product(requests(), keys)
    frames = (signed_request(code, fields, *each, body) for (code, fields, body), each in asked)
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
