"""Notifies the members of a consumer group that it changed, so that they share out its queues anew at once.

A broker sends NOTIFY_CONSUMER_IDS_CHANGED to every member when one joins or leaves. The new member is notified too;
because of that, lite-pull consumers start within one second instead of twenty (remoting-protocol §3.2). The members of
a broadcasting group share no queues and are not notified.
"""

import asyncio
import contextlib
import itertools
import threading

from broker.service.consumers.client_registry import ConsumerGroup
from broker.service.dispatcher import ClientConnection
from protocol.codes import RequestCode
from protocol.command import encode_request
from storage.store.message_store import MessageStore

BROADCASTING = "BROADCASTING"

NOTICES_A_TURN = 512
"""Members that are notified in one turn of the event loop. The others follow in the next turns, and get one notice for
all changes of their group until then."""


class GroupNotices:
    """Sends the notices of one server; `notify` may be called on any thread, and does nothing before `start`."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._opaques = itertools.count(1)
        self._sent = 0
        self._waiting: dict[str, ConsumerGroup] = {}
        self._left: list[ClientConnection] = []
        self._frame = b""
        self._is_due = False

    def start(self) -> None:
        """Send from now on, on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def stop(self) -> None:
        """Send no more notices: clients whose connections end now connect to another server and rebalance there."""
        self._loop = None

    def notify(self, group: ConsumerGroup) -> None:
        """Notify all members of a group that it changed, unless it is broadcasting or wants no notices."""
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
        """Notify the members at once; in later turns of the event loop where this one has notified many already."""
        self._waiting[group.name] = group
        if not self._left:
            self._send_some()

    def _send_some(self) -> None:
        while self._sent < NOTICES_A_TURN and (self._left or self._waiting):
            if not self._left:
                self._begin(self._waiting.pop(next(iter(self._waiting))))
            notified = self._left[-(NOTICES_A_TURN - self._sent) :]
            del self._left[-len(notified) :]
            for connection in notified:
                connection.push(self._frame)
            self._sent += len(notified) + 1
        if not self._is_due and self._loop is not None:
            self._is_due = True
            self._loop.call_soon(self._end_turn)

    def _begin(self, group: ConsumerGroup) -> None:
        """Prepare the notice of the next group and the list of its members."""
        fields = {"consumerGroup": group.name}
        opaque = next(self._opaques) & 0x7FFFFFFF
        self._frame = encode_request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, fields, opaque=opaque, oneway=True)
        self._left = [member.connection for member in list(group.members.values())]

    def _end_turn(self) -> None:
        self._is_due, self._sent = False, 0
        if self._loop is not None and (self._left or self._waiting):
            self._send_some()
