"""Names of topics and groups with their namespace, as clients write them and as stores have them (`NamespaceUtil`)."""

from functools import lru_cache
from typing import Final

from broker.grpc.messages.definition_pb2 import Resource
from protocol.system_topics import DEAD_LETTER_PREFIX, RETRY_PREFIX

KEPT: Final = 1024
"""Names whose form is remembered."""

SEPARATOR: Final = "%"
"""Stands between a namespace and a name."""


def full_name(resource: Resource) -> str:
    """The name under which a store has a topic or a group: `NAMESPACE%NAME`, behind the prefix of a group's topic."""
    prefix, name = _prefix_and_rest(resource.name)
    namespace = resource.resource_namespace
    if not namespace or not name or name.startswith(f"{namespace}{SEPARATOR}"):
        return resource.name
    return f"{prefix}{namespace}{SEPARATOR}{name}"


@lru_cache(KEPT)
def resource_of(name: str) -> Resource:
    """A topic or a group as clients know it; not to be changed."""
    prefix, rest = _prefix_and_rest(name)
    at = rest.find(SEPARATOR)
    if at <= 0:
        return Resource(name=written(name))
    return Resource(resource_namespace=written(rest[:at]), name=written(prefix + rest[at + 1 :]))


def written(text: str) -> str:
    """A text as protobuf can hold it: what is no Unicode is replaced."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _prefix_and_rest(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name
