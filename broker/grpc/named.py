"""Names of topics and groups in calls of clients, checked in the words of the official proxy (`GrpcValidator`).

As there, the namespace of a resource is echoed and no part of its name.
"""

import re
from typing import Final

from broker.grpc.messages.definition_pb2 import Code, Resource
from broker.grpc.statuses import CallRefused
from protocol.system_topics import SYSTEM_GROUP_PREFIX, system_topic

LONGEST_TOPIC: Final = 127
LONGEST_GROUP: Final = 120
LETTERS: Final = "^[%|a-zA-Z0-9_-]+$"
_LETTERS: Final = re.compile(r"[%|a-zA-Z0-9_-]+")


def topic_of(resource: Resource) -> str:
    """The name of a topic that clients may know. Raises `CallRefused`."""
    name = resource.name
    if not name.strip():
        raise CallRefused(Code.ILLEGAL_TOPIC, "The specified topic is blank")
    if not _LETTERS.fullmatch(name):
        text = f"The specified topic[{name}] contains illegal characters, allowing only {LETTERS}"
        raise CallRefused(Code.ILLEGAL_TOPIC, text)
    if len(name) > LONGEST_TOPIC:
        raise CallRefused(Code.ILLEGAL_TOPIC, f"The specified topic is longer than topic max length {LONGEST_TOPIC}.")
    if system_topic(name) is not None:
        raise CallRefused(Code.ILLEGAL_TOPIC, "cannot access system topic")
    return name


def group_of(resource: Resource) -> str:
    """The name of a consumer group. Raises `CallRefused`."""
    name = resource.name
    if not name.strip():
        raise CallRefused(Code.ILLEGAL_CONSUMER_GROUP, "the specified group is blank")
    if not _LETTERS.fullmatch(name):
        text = f"the specified group[{name}] contains illegal characters, allowing only {LETTERS}"
        raise CallRefused(Code.ILLEGAL_CONSUMER_GROUP, text)
    if len(name) > LONGEST_GROUP:
        text = f"the specified group[{name}] is longer than group max length: {LONGEST_GROUP}."
        raise CallRefused(Code.ILLEGAL_CONSUMER_GROUP, text)
    if name.startswith(SYSTEM_GROUP_PREFIX):
        raise CallRefused(Code.ILLEGAL_CONSUMER_GROUP, "cannot use system consumer group")
    return name
