"""Read the messages of Apache RocketMQ: from a store's directory, from behind a URL, or from a broker.

    import rocketlens

    with rocketlens.open("/data/store") as store:
        for message in store.query("orders", key="4711"):
            print(message.store_time, message.body)

What this module names is promised to stay, and is the only thing that is; every other module may change with any
release. A guide with examples is docs/python.md.

Late imports: importing this package opens nothing and loads nothing; each name is looked up when it is first used, and
what only some methods need (NumPy, pyarrow, pyspark, the network) is imported by these methods.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from broker.cluster.client import ClientError, ResponseError
    from protocol.errors import (
        BeingSearched,
        ConfigError,
        CorruptRecord,
        FilterSyntaxError,
        NoSuchTopic,
        NotAStore,
        ProtocolError,
        StoreError,
    )
    from protocol.errors import RocketLensError as Error
    from protocol.host_address import HostAddress
    from protocol.message import Message
    from protocol.question import Answer, Reading
    from rocketlens.answers import Group, Info, Topic
    from rocketlens.arrow_reader import DamageWarning, arrow
    from rocketlens.growing_table import append_batches
    from rocketlens.looking_up import LookUp
    from rocketlens.remote import AsyncRemoteStore, connect_async
    from rocketlens.remote_plain import RemoteStore, connect
    from rocketlens.searching import AsyncSearch, Search
    from rocketlens.source import Source
    from rocketlens.sources import open
    from rocketlens.spark_source import spark
    from rocketlens.store import Store
    from storage.doctor.examine import Diagnosis
    from storage.doctor.finding import Finding
    from storage.life.message_life import Event, MessageLife
    from storage.search.lookup import Match
    from storage.search.progress import ProgressReport
    from storage.space.whole import Space
    from storage.store.extents import QueueExtent

_PLACES: Final = {
    "Answer": "protocol.question",
    "AsyncRemoteStore": "rocketlens.remote",
    "AsyncSearch": "rocketlens.searching",
    "BeingSearched": "protocol.errors",
    "ClientError": "broker.cluster.client",
    "ConfigError": "protocol.errors",
    "CorruptRecord": "protocol.errors",
    "DamageWarning": "rocketlens.arrow_reader",
    "Diagnosis": "storage.doctor.examine",
    "Error": "protocol.errors:RocketLensError",
    "Event": "storage.life.message_life",
    "FilterSyntaxError": "protocol.errors",
    "Finding": "storage.doctor.finding",
    "Group": "rocketlens.answers",
    "HostAddress": "protocol.host_address",
    "Info": "rocketlens.answers",
    "LookUp": "rocketlens.looking_up",
    "Match": "storage.search.lookup",
    "Message": "protocol.message",
    "MessageLife": "storage.life.message_life",
    "NoSuchTopic": "protocol.errors",
    "NotAStore": "protocol.errors",
    "ProgressReport": "storage.search.progress",
    "ProtocolError": "protocol.errors",
    "QueueExtent": "storage.store.extents",
    "Reading": "protocol.question",
    "RemoteStore": "rocketlens.remote_plain",
    "ResponseError": "broker.cluster.client",
    "Search": "rocketlens.searching",
    "Source": "rocketlens.source",
    "Space": "storage.space.whole",
    "Store": "rocketlens.store",
    "StoreError": "protocol.errors",
    "Topic": "rocketlens.answers",
    "append_batches": "rocketlens.growing_table",
    "arrow": "rocketlens.arrow_reader",
    "connect": "rocketlens.remote_plain",
    "connect_async": "rocketlens.remote",
    "open": "rocketlens.sources",
    "spark": "rocketlens.spark_source",
}
"""Where each name is defined, and under which name where it has another one there."""

__all__ = [
    "Answer",
    "AsyncRemoteStore",
    "AsyncSearch",
    "BeingSearched",
    "ClientError",
    "ConfigError",
    "CorruptRecord",
    "DamageWarning",
    "Diagnosis",
    "Error",
    "Event",
    "FilterSyntaxError",
    "Finding",
    "Group",
    "HostAddress",
    "Info",
    "LookUp",
    "Match",
    "Message",
    "MessageLife",
    "NoSuchTopic",
    "NotAStore",
    "ProgressReport",
    "ProtocolError",
    "QueueExtent",
    "Reading",
    "RemoteStore",
    "ResponseError",
    "Search",
    "Source",
    "Space",
    "Store",
    "StoreError",
    "Topic",
    "append_batches",
    "arrow",
    "connect",
    "connect_async",
    "open",
    "spark",
]


def __getattr__(name: str) -> object:
    """Import a name when it is first used. Raises ImportError where a package of others is in the way of ours."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    from rocketlens.own_packages import require_own_packages

    require_own_packages()
    module, _, other_name = _PLACES[name].partition(":")
    value: object = getattr(import_module(module), other_name or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
