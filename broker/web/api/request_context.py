"""The context of a request, for the thread that answers it: what it may show, and how long it may take."""

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TypeVar

from broker.security.accounts import Account, Permission
from broker.security.needs import group_resource
from broker.security.topic_rights import may_read, permits_topic, readable
from broker.service.broker_service import BrokerService
from broker.web.api.errors import ApiError, ClientGone, forbidden, not_found
from protocol.errors import ConfigError, StoreError
from protocol.message import Message
from storage.kernels.file_map import count_cuts
from storage.names import did_you_mean, similar_names
from storage.patterns.mask import MOST_OF_ANSWER, BoundedMask, mask_of
from storage.store.message_store import MessageStore
from storage.store.topic_catalog import topic_names

Result = TypeVar("Result")

UNBOUNDED = float("inf")


@dataclass(slots=True, eq=False)
class RequestContext:
    """Everything that an endpoint works with. `account` None: no account is needed, and everything may be seen."""

    service: BrokerService
    account: Account | None = None
    needs_keys: bool = False
    """Whether other clients than this one need an account."""
    brokers: tuple[str, ...] = ()
    """The names of all brokers whose stores are served; `service` is one of them."""
    gone: threading.Event = field(default_factory=threading.Event)
    """Set when the client is gone, or the server stops."""
    deadline: float = UNBOUNDED
    _mask: BoundedMask | None = field(default=None, init=False)

    @property
    def store(self) -> MessageStore:
        """The store that is served."""
        return self.service.store

    @property
    def mask(self) -> BoundedMask:
        """The mask of messages, for every account; it gives a text up when the client is gone."""
        if self._mask is None:
            self._mask = mask_of(self.service.options.masked).for_one_run(self.gone.is_set, MOST_OF_ANSWER)
        return self._mask

    def ask(self, service: BrokerService) -> None:
        """Have another store asked, with the mask that it has."""
        self.service, self._mask = service, None

    @property
    def kept_mask(self) -> BoundedMask:
        """The mask for results that are kept for other clients: it goes on when this client is gone."""
        return mask_of(self.service.options.masked).for_one_run(most=MOST_OF_ANSWER)

    def allow(self, milliseconds: int) -> None:
        """Set how long the work may take from now on; after that the answer has what was found by then."""
        self.deadline = time.monotonic() + milliseconds / 1000

    @property
    def is_time_up(self) -> bool:
        """Whether to end the answer here. Raises `ClientGone` if the client is gone."""
        self.check()
        return time.monotonic() >= self.deadline

    def check(self) -> None:
        """Raise `ClientGone` if the client is gone."""
        if self.gone.is_set():
            raise ClientGone

    def uncut(self, work: Callable[[], Result]) -> Result:
        """Return what a work finds, unless a file of the store was cut meanwhile: it may be made of zeros."""
        before = count_cuts()
        found = work()
        if (cut := self.store.cut(before)) is not None:
            raise cut
        return found

    @property
    def is_admin(self) -> bool:
        """Whether figures of all topics together may be seen."""
        return self.account is None or self.account.is_admin

    def may_read(self, topic: str) -> bool:
        """Whether messages of a topic may be seen."""
        return self.account is None or permits_topic(self.account, topic, (self.service.origins,))

    def readable(self, text: str, asked: Collection[str]) -> str:
        """Hide from a sentence about the store what this client may not read; `asked` are the texts of its question."""
        return text if self.account is None else readable(self.account, text, self.service.origins, asked)

    def may_read_message(self, message: Message) -> bool:
        """Whether a message may be seen: by its topic, and for a copy also by the topic that it was sent to."""
        return self.account is None or may_read(self.account, message, self.service.origins)

    def require_message(self, message: Message) -> None:
        """Raise `ApiError` for a message that may not be seen; the error does not name its topic."""
        if not self.may_read_message(message):
            assert self.account is not None
            name = self.account.access_key
            raise forbidden(f"{name} may not read the message at physical offset {message.physical_offset}")

    def may_see_group(self, group: str) -> bool:
        """Whether the progress of a consumer group may be seen."""
        return self.account is None or self.account.permits(group_resource(group), Permission.SUB)

    def require_group(self, group: str) -> None:
        """Raise `ApiError` for a group as which this account may not consume."""
        if not self.may_see_group(group):
            assert self.account is not None
            raise forbidden(f"{self.account.access_key} may not read group {group}")

    def require_admin(self) -> None:
        """Raise `ApiError` for an account that is no administrator's."""
        if not self.is_admin:
            assert self.account is not None
            raise forbidden(f"{self.account.access_key} may not see this: it is for administrators")

    def require_topic(self, topic: str) -> None:
        """Raise `ApiError` for a topic that may not be read, or that the store does not have."""
        self.require_right(topic)
        if not self.store.queues.has_topic(topic) and topic not in self.store.config.topics:
            similar = self.similar_topics(topic)
            absence = (f"the store has no topic {topic}", did_you_mean(similar))
            raise not_found("; ".join(filter(None, absence)), "topic", similar)

    def require_right(self, topic: str) -> None:
        """Raise `ApiError` for a topic that may not be read, whether it is there or not."""
        if not self.may_read(topic):
            assert self.account is not None
            raise forbidden(f"{self.account.access_key} may not read topic {topic}")

    def refuse_tier(self, question: str) -> None:
        """Raise `ApiError` for a question about the log alone, where older messages are in a tier."""
        try:
            self.store.refuse_tier(question)
        except ConfigError as error:
            raise ApiError(400, "in_tier", str(error)) from None

    def similar_topics(self, name: str) -> list[str]:
        """List the topics that may be read and are similar to a name; nothing if one of them has that name."""
        try:
            names = self.topics()
        except StoreError:  # The topics cannot be listed.
            return []
        return [] if name in names else similar_names(name, names)

    def topics(self) -> list[str]:
        """The names of all topics that may be read, sorted."""
        return [topic for topic in topic_names(self.store) if self.may_read(topic)]
