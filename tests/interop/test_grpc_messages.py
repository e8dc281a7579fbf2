"""Our gRPC messages beside Apache's: the same numbers and types, and of each recorded message the same conversion."""

import os
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FileDescriptorProto, FileDescriptorSet

from broker.grpc.message_conversion import message_of
from broker.grpc.messages import definition_pb2, service_pb2
from broker.grpc.messages.definition_pb2 import Message
from golden_store import G1, GOLDEN, unpack
from interop.jars import SERVER_VERSION, cached, compiled
from interop.official_proxy import bring_proxy
from needed_tools import tool
from protocol.message import decode_messages

pytestmark = pytest.mark.interop

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
