"""Tells the members of a consumer group that it changed, so that they share out its queues anew at once.

A broker sends NOTIFY_CONSUMER_IDS_CHANGED to every member when one comes or goes; a member that just came hears it too,
which is what makes lite-pull consumers start within a second instead of twenty (remoting-protocol §3.2). Members of a
broadcasting group share nothing and are told nothing.
"""

import asyncio
import contextlib
import itertools
import threading
from typing import TYPE_CHECKING

from broker.consumers.client_registry import ConsumerGroup
from protocol.codes import RequestCode
from protocol.command import encode_request

if TYPE_CHECKING:
    from storage.message_store import MessageStore

BROADCASTING = "BROADCASTING"


class GroupNotices:
    """Sends the notices of one server; `tell` may be called on any thread, and does nothing before `start`."""

    def __init__(self, store: "MessageStore") -> None:
        self._store = store
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._opaques = itertools.count(1)

    def start(self) -> None:
        """Send from now on, on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def stop(self) -> None:
        """Send no more: connections that end here come back elsewhere, and find out by themselves."""
        self._loop = None

    def tell(self, group: ConsumerGroup) -> None:
        """Tell all members of a group that it changed, unless they do not share its queues or do not want to know."""
        loop = self._loop
        config = self._store.config.subscription_groups.get(group.name) if loop is not None else None
        is_unwanted = config is not None and not config.notify_consumer_ids_changed_enable
        if loop is None or is_unwanted or group.message_model == BROADCASTING:
            return
        if threading.get_ident() == self._thread:
            self._send(group)
        else:
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(self._send, group)

    def _send(self, group: ConsumerGroup) -> None:
        fields = {"consumerGroup": group.name}
        opaque = next(self._opaques) & 0x7FFFFFFF
        frame = encode_request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, fields, opaque=opaque, oneway=True)
        for member in list(group.members.values()):
            member.connection.push(frame)
