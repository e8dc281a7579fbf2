"""The tables of system topics and properties against the constants of the newest official jar.

A constant that a newer RocketMQ brings fails here until somebody has said in the tables what it means.
"""

import re
import subprocess
from functools import cache

import pytest

from interop.jars import NEWEST_BROKER_VERSION, jars
from needed_tools import tool
from protocol import system_topics
from protocol.system_properties import SYSTEM_PROPERTIES
from protocol.system_topics import (
    DEAD_LETTER_PREFIX,
    LIGHT_PREFIX,
    OP_TOPICS,
    POP_SEPARATORS,
    RETRY_PREFIX,
    REVIVE_TOPIC_PREFIX,
    SYSTEM_GROUP_PREFIX,
    TIMER_TOPIC,
    TOPICS_OF_EVERY_BROKER,
    system_topic,
)

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
    """What is printed of classes of the newest jars."""
    path = f"{jars(NEWEST_BROKER_VERSION)}/*"
    command = [tool("javap"), "-p", "-cp", path, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@cache
def all_constants() -> dict[str, dict[str, str]]:
    """The texts among the constants of each class, by name."""
    names = [f"org.apache.rocketmq.{name}" for name in CLASSES]
    parts = javap("-constants", *names).split("Compiled from ")[1:]
    found = dict(zip(CLASSES, (dict(CONSTANT.findall(part)) for part in parts), strict=True))
    assert all(found.values())
    return found


def constants(of: str) -> dict[str, str]:
    return all_constants()[of]


def test_every_topic_of_the_validator_has_its_row() -> None:
    named = constants("common.topic.TopicValidator")
    assert len(named) >= 14
    for name, topic in named.items():
        row = system_topic(topic)
        assert row is not None, name
        assert row.name == topic, name
        assert row.is_prefix == name.endswith("_PREFIX"), name


def test_every_property_of_messages_has_its_row() -> None:
    named = constants("common.message.MessageConst")
    assert len(named) > 70
    assert named.keys() >= NO_PROPERTIES
    assert {value for name, value in named.items() if name not in NO_PROPERTIES} == SYSTEM_PROPERTIES.keys()


def test_prefixes_and_separators_are_those_of_the_broker() -> None:
    names = constants("common.MixAll")
    assert names["RETRY_GROUP_TOPIC_PREFIX"] == RETRY_PREFIX
    assert names["DLQ_GROUP_TOPIC_PREFIX"] == DEAD_LETTER_PREFIX
    assert names["LMQ_PREFIX"] == LIGHT_PREFIX
    assert names["CID_RMQ_SYS_PREFIX"] == SYSTEM_GROUP_PREFIX
    assert f"_{names['REPLY_TOPIC_POSTFIX']}" == system_topics.REPLY_TOPIC_SUFFIX
    assert constants("common.PopAckConstants")["REVIVE_TOPIC"] == REVIVE_TOPIC_PREFIX
    assert constants("store.timer.TimerMessageStore")["TIMER_TOPIC"] == TIMER_TOPIC
    separators = constants("common.KeyBuilder")
    written = separators["POP_RETRY_SEPARATOR_V2"] + separators["POP_RETRY_SEPARATOR_V1"]
    assert written == POP_SEPARATORS


def test_the_topics_that_the_broker_asks_for_their_real_topic_are_those_with_an_origin() -> None:
    """QueryMessageProcessor of 5.5.1 shows their records only to who names the REAL_TOPIC."""
    printed = javap("-c", "org.apache.rocketmq.broker.processor.QueryMessageProcessor")
    initializer = printed[printed.index("static {}") :]
    asked = set(re.findall(r"// String ((?:\w+_)+\w+)$", initializer, re.MULTILINE))
    assert len(asked) == 4
    rows = {row.name for row in system_topics.SYSTEM_TOPICS if row.origin == "REAL_TOPIC"}
    assert asked == rows - {system_topics.ROCKSDB_HALF_TOPIC}, "5.5.1 forgets the half messages of RocksDB"


@pytest.mark.parametrize("topic", sorted({*OP_TOPICS, *OP_TOPICS.values(), *TOPICS_OF_EVERY_BROKER}))
def test_what_the_table_calls_a_topic_of_every_broker_is_one_to_the_validator(topic: str) -> None:
    assert topic in constants("common.topic.TopicValidator").values()
