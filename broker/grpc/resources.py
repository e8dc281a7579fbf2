"""Names of topics and groups: with their namespace as tools write them (`NamespaceUtil`), and those of clients.

Names of clients are checked in the words of the official proxy (`GrpcValidator`). As there, the namespace of their
resources is echoed and no part of a name.
"""

import re
from functools import lru_cache
from typing import Final

from broker.grpc.messages.definition_pb2 import Code, Resource
from broker.grpc.statuses import CallRefused
from protocol.header_fields import well_formed
from protocol.system_topics import DEAD_LETTER_PREFIX, RETRY_PREFIX, SYSTEM_GROUP_PREFIX, system_topic

KEPT: Final = 1024
"""Names whose form is remembered."""

SEPARATOR: Final = "%"
"""Stands between a namespace and a name."""

LONGEST_TOPIC: Final = 127
LONGEST_GROUP: Final = 120
LETTERS: Final = "^[%|a-zA-Z0-9_-]+$"
_LETTERS: Final = re.compile(r"[%|a-zA-Z0-9_-]+")


def full_name(resource: Resource) -> str:
    """The name under which a store has a topic or a group: `NAMESPACE%NAME`, behind the prefix of a group's topic."""
    prefix, name = _prefix_and_rest(resource.name)
    namespace = resource.resource_namespace
    if not namespace or not name or name.startswith(f"{namespace}{SEPARATOR}"):
        return resource.name
    return f"{prefix}{namespace}{SEPARATOR}{name}"


def named_topic(resource: Resource) -> str:
    """The full name of the topic of a request. Raises `CallRefused` where none is named."""
    if name := full_name(resource):
        return name
    raise CallRefused(Code.ILLEGAL_TOPIC, "the topic is missing")


def named_group(resource: Resource) -> str:
    """The full name of the group of a request. Raises `CallRefused` where none is named."""
    if name := full_name(resource):
        return name
    raise CallRefused(Code.ILLEGAL_CONSUMER_GROUP, "the group is missing")


@lru_cache(KEPT)
def resource_of(name: str) -> Resource:
    """A topic or a group as clients know it; not to be changed."""
    prefix, rest = _prefix_and_rest(name)
    at = rest.find(SEPARATOR)
    if at <= 0:
        return Resource(name=well_formed(name))
    return Resource(resource_namespace=well_formed(rest[:at]), name=well_formed(prefix + rest[at + 1 :]))


def _prefix_and_rest(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name


def _check_namespace(resource: Resource, code: "Code") -> None:
    if len(resource.resource_namespace) > LONGEST_TOPIC:
        raise CallRefused(code, f"the namespace is longer than {LONGEST_TOPIC} characters")


def checked_topic(resource: Resource) -> str:
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
    _check_namespace(resource, Code.ILLEGAL_TOPIC)
    return name


def checked_group(resource: Resource) -> str:
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
    _check_namespace(resource, Code.ILLEGAL_CONSUMER_GROUP)
    return name
