"""Codes against what the real broker and clients said on the wire, and against RocketMQ's own constants."""

from enum import IntEnum
from pathlib import Path

import pytest

from golden_frames import recorded_frames
from protocol.codes import LanguageCode, RequestCode, ResponseCode, SerializeType

RESPONSE_FLAG = 1

# Those that the file below does not list, as the Java classes of the same names in 5.5.1 have them.
CONSTANTS = [
    (RequestCode, "DELETE_TOPIC_IN_BROKER_LIST", 5002),
    (RequestCode, "DELETE_SUBSCRIPTION_GROUP_LIST", 5003),
    (LanguageCode, "JAVA", 0),
    (LanguageCode, "GO", 9),
    (LanguageCode, "NODE_JS", 13),
    (SerializeType, "JSON", 0),
    (SerializeType, "ROCKETMQ", 1),
]

JAVA_CODES = Path(__file__).parents[1] / "data" / "java-codes.tsv"
"""Class, name and value of each constant: what `javap -constants` prints of the jar of remoting 5.5.0, where
RemotingSysResponseCode is what ResponseCode extends, and at the end the four of 4.9.8 that 5.5.0 has no more."""

NEVER_ON_THE_WIRE = set(range(1014, 1019))
"""What controllers say to themselves, in the log that they replicate."""


@pytest.mark.parametrize(
    ("kind", "classes"),
    [(RequestCode, {"RequestCode"}), (ResponseCode, {"ResponseCode", "RemotingSysResponseCode"})],
)
def test_the_codes_are_all_constants_of_the_java_classes(kind: type[IntEnum], classes: set[str]) -> None:
    rows = [line.split("\t") for line in JAVA_CODES.read_text().splitlines()]
    java = {name: int(value) for class_, name, value in rows if class_ in classes}
    assert len(java) > 60
    java |= {name: value for newer, name, value in CONSTANTS if newer is kind}
    expected = {name: value for name, value in java.items() if kind is ResponseCode or value not in NEVER_ON_THE_WIRE}
    assert {name: int(code) for name, code in kind.__members__.items()} == expected


def test_every_recorded_code_and_language_is_known() -> None:
    headers = [frame.header for frame in recorded_frames() if frame.header]
    assert {bool(header["flag"] & RESPONSE_FLAG) for header in headers} == {True, False}
    for header in headers:
        kind = ResponseCode if header["flag"] & RESPONSE_FLAG else RequestCode
        assert header["code"] in list(kind)
        assert header["language"] in LanguageCode.__members__
