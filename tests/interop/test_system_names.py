"""The tables of system topics and properties against the constants of the newest official jar.

A constant that a newer RocketMQ brings fails here until somebody has said in the tables what it means.
"""

import re
import subprocess

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
    path = f"{jars(NEWEST_BROKER_VERSION)}/*"
    command = [tool("javap"), "-p", "-cp", path, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_tables_are_those_of_the_newest_jar() -> None:
    parts = javap("-constants", *(f"org.apache.rocketmq.{name}" for name in CLASSES)).split("Compiled from ")[1:]
    topics, properties, names, pop, separators, timers = (dict(CONSTANT.findall(part)) for part in parts)
    assert len(topics) >= 14
    for name, topic in topics.items():
        row = system_topic(topic)
        assert row is not None, name
        assert (row.name, row.is_prefix) == (topic, name.endswith("_PREFIX")), name
    assert {*OP_TOPICS, *OP_TOPICS.values(), *TOPICS_OF_EVERY_BROKER} <= {*topics.values()}
    assert len(properties) > 70
    assert properties.keys() >= NO_PROPERTIES
    assert {value for name, value in properties.items() if name not in NO_PROPERTIES} == SYSTEM_PROPERTIES.keys()
    known = {
        "RETRY_GROUP_TOPIC_PREFIX": RETRY_PREFIX, "DLQ_GROUP_TOPIC_PREFIX": DEAD_LETTER_PREFIX,
        "LMQ_PREFIX": LIGHT_PREFIX, "CID_RMQ_SYS_PREFIX": SYSTEM_GROUP_PREFIX,
        "REPLY_TOPIC_POSTFIX": system_topics.REPLY_TOPIC_SUFFIX[1:],
    }  # fmt: skip
    assert {name: names[name] for name in known} == known
    assert (pop["REVIVE_TOPIC"], timers["TIMER_TOPIC"]) == (REVIVE_TOPIC_PREFIX, TIMER_TOPIC)
    assert separators["POP_RETRY_SEPARATOR_V2"] + separators["POP_RETRY_SEPARATOR_V1"] == POP_SEPARATORS


def test_the_topics_that_the_broker_asks_for_their_real_topic_are_those_with_an_origin() -> None:
    """QueryMessageProcessor of 5.5.1 shows their records only to who names the REAL_TOPIC."""
    printed = javap("-c", "org.apache.rocketmq.broker.processor.QueryMessageProcessor")
    initializer = printed[printed.index("static {}") :]
    asked = set(re.findall(r"// String ((?:\w+_)+\w+)$", initializer, re.MULTILINE))
    assert len(asked) == 4
    rows = {row.name for row in system_topics.SYSTEM_TOPICS if row.origin == "REAL_TOPIC"}
    assert asked == rows - {system_topics.ROCKSDB_HALF_TOPIC}, "5.5.1 forgets the half messages of RocksDB"
