"""The cluster that messages are sent to: its topics, what it has of a message, and whether its index is up to date."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeVar

from broker.cluster.client import (
    MOST_OF_A_UNIQUE_KEY,
    MOST_QUEUES,
    Client,
    ClientError,
    ResponseError,
    addresses,
    decoded_records,
)
from broker.endpoint import Endpoint
from protocol.bodies import TopicRouteData
from protocol.codes import ResponseCode
from protocol.errors import BadMessageId, ConfigError, RocketLensError
from protocol.message import Message, decode_message
from protocol.message_id import decode_message_id
from protocol.question import KeyKind, Question, taken_apart
from protocol.system_topics import RETRY_PREFIX
from rocketlens.replay.account import SentMessage, SentName
from rocketlens.replay.resent import ORIGIN

Answer = TypeVar("Answer")

WRITABLE: Final = 2
"""The bit of a queue's permission that lets producers send."""

USUAL_SIZE: Final = 4 * 1024 * 1024
"""Bytes of a body that a broker takes where nothing else is configured."""

ASKED_AT_ONCE: Final = 64
"""Messages that a target is asked about at the same time."""

BEHIND_FIGURE: Final = "dispatchBehindBytes"
"""The runtime figure that says how much of a broker's log its index lacks."""

CAUGHT_UP_SECONDS: Final = 10.0
"""How long a broker's index is waited for."""


class TargetQueue(NamedTuple):
    """A queue that may be sent to."""

    broker: str
    endpoint: Endpoint
    queue_id: int


@dataclass(frozen=True, slots=True)
class TargetTopic:
    """What the target has of a topic; what an account may not ask for is not known, and empty.

    `queues` are those of all brokers, in the order of `by_broker`, where each broker has one at least. `size_limit` in
    bytes; `kind` is its `message.type`; `problem` says why nothing can be sent to it.
    """

    name: str
    by_broker: Mapping[str, tuple[TargetQueue, ...]] = field(default_factory=dict)
    queues: tuple[TargetQueue, ...] = ()
    size_limit: int = USUAL_SIZE
    kind: str = ""
    groups: tuple[str, ...] = ()
    messages: int = 0
    problem: str = ""
    notes: tuple[str, ...] = field(default=())

    @property
    def brokers(self) -> dict[str, Endpoint]:
        """The addresses of its brokers by name."""
        return {name: queues[0].endpoint for name, queues in self.by_broker.items()}


class ReplayTarget:
    """Asks the brokers that a name server names; topics are asked about once."""

    def __init__(self, client: Client, name_servers: tuple[Endpoint, ...]) -> None:
        self.client, self._name_servers = client, name_servers
        self._topics: dict[str, TargetTopic] = {}

    async def topic(self, name: str) -> TargetTopic:
        """Ask for a topic of the target; raises `ClientError` where no name server answers."""
        if name not in self._topics:
            self._topics[name] = await self._asked(name)
        return self._topics[name]

    async def _asked(self, name: str) -> TargetTopic:
        route = await self._route(name)
        if route is None:
            return TargetTopic(name, problem=await self._absence(name))
        where = addresses(self._name_servers[0], route.broker_datas)
        masters = {each.broker_name for each in route.broker_datas if "0" in each.broker_addrs}
        by_broker = {
            each.broker_name: tuple(
                TargetQueue(each.broker_name, where[each.broker_name], number)
                for number in range(min(each.write_queue_nums, MOST_QUEUES))
            )
            for each in sorted(route.queue_datas, key=lambda each: each.broker_name)
            if each.perm & WRITABLE and each.broker_name in masters and each.write_queue_nums > 0
        }
        if not by_broker:
            return TargetTopic(name, problem=f"topic {name} cannot be written there")
        queues = tuple(itertools.chain.from_iterable(by_broker.values()))
        return await self._with_facts(TargetTopic(name, by_broker, queues))

    async def _route(self, name: str) -> TopicRouteData | None:
        """The route of a topic by the first name server that answers; None where it has none."""

        async def asked(server: Endpoint) -> TopicRouteData | None:
            try:
                route = await self.client.route(server, name)
            except ResponseError as error:
                if error.code != ResponseCode.TOPIC_NOT_EXIST:
                    raise
                return None
            if route is None:
                raise ConfigError(f"{server} is a broker, and a name server is needed: name the one that it is with")
            return route

        return await self._first_answer(asked)

    async def _first_answer(self, ask: Callable[[Endpoint], Awaitable[Answer]]) -> Answer:
        """What the first name server says that answers; raises `ClientError` where none does."""
        for server in self._name_servers[:-1]:
            with suppress(ClientError):
                return await ask(server)
        return await ask(self._name_servers[-1])

    async def _with_facts(self, topic: TargetTopic) -> TargetTopic:
        """Complete a topic by the answers of its brokers; a refusal is noted."""
        limits, kinds, notes = [USUAL_SIZE], [], []
        groups: set[str] = set()
        messages = 0
        for broker, endpoint in topic.brokers.items():
            try:
                config = await self.client.broker_config(endpoint)
                limits.append(int(config.get("maxMessageSize", USUAL_SIZE)))
                mine = (await self.client.topic_queues(endpoint)).get(topic.name)
                attributes: Mapping[str, str] = (mine.attributes if mine is not None else None) or {}
                kinds += [value for name, value in attributes.items() if name.lstrip("+") == "message.type"]
                groups.update(await self.client.consuming_groups(endpoint, topic.name))
                offsets = await self.client.topic_offsets(endpoint, topic.name)
                messages += sum(each.max_offset for each in offsets.values())
            except (ResponseError, ValueError) as error:
                messages += 1  # so that it is asked for each message
                notes.append(f"{broker} does not say all that is known of topic {topic.name}: {error}")
        return replace(
            topic,
            size_limit=min(limits[1:], default=USUAL_SIZE),
            kind=", ".join(sorted(set(kinds))),
            groups=tuple(sorted(groups)),
            messages=messages,
            notes=tuple(notes),
        )

    async def _absence(self, name: str) -> str:
        """Why nothing can be sent to a topic that has no route, and how it gets one."""
        group = name.removeprefix(RETRY_PREFIX)
        if group != name:
            return f"the group {group} does not exist there, or has never consumed: it has no retry topic"
        found = await self._first_answer(self.client.clusters)
        cluster = next(iter(sorted(found.cluster_addr_table)), "CLUSTER") if found is not None else "CLUSTER"
        command = f"mqadmin updateTopic -n '{';'.join(map(str, self._name_servers))}' -c {cluster} -t {name}"
        return f"topic {name} does not exist there, create it: {command}"

    async def addresses(self) -> set[str]:
        """The addresses of all brokers that the name server knows, as ``host:port``."""
        found = await self._first_answer(self.client.brokers)
        return set() if found is None else {str(each) for each in found.values()}

    async def retry_topics(self) -> list[str]:
        """The retry topics that the name server knows; none where it does not list its topics."""
        try:
            topics = await self._first_answer(self.client.named_topics)
        except ResponseError:
            return []
        return [topic for topic in topics if topic.startswith(RETRY_PREFIX)]

    async def ends(self, topic: TargetTopic) -> dict[tuple[str, int], int]:
        """Where the queues of a topic end, by broker and queue."""
        found: dict[tuple[str, int], int] = {}
        for broker, endpoint in topic.brokers.items():
            offsets = await self.client.topic_offsets(endpoint, topic.name)
            found |= {(broker, queue_id): each.max_offset for queue_id, each in offsets.items()}
        return found

    async def copies(self, topic: TargetTopic, name: SentName) -> list[Message]:
        """The messages of a topic with the unique key and the origin of one that was sent, by their place."""
        question = Question(topic.name, name.unique_key, KeyKind.UNIQUE, MOST_OF_A_UNIQUE_KEY)
        found: dict[str, Message] = {}
        for endpoint in topic.brokers.values():
            page = await self.client.query(endpoint, question)
            for record in decoded_records(endpoint, page.records):
                for message in question.messages_in(record):
                    if message.properties.get(ORIGIN) == name.origin:
                        found.setdefault(f"{message.offset_message_id} {message.queue_offset}", message.detached())
        return list(found.values())

    async def at(self, topic: TargetTopic, sent: SentMessage) -> Message | None:
        """The message at the id that the target gave to one that was sent; None where there is none."""
        try:
            place = decode_message_id(sent.sent_id)
        except BadMessageId:  # others than Apache's brokers may say other ids
            return None
        address = Endpoint(place.address.ip, place.address.port)
        endpoint = next((each for each in topic.brokers.values() if each == address), None)
        # A broker may say another address of itself than the one it is reached by; offsets of one broker are its own.
        for each in (endpoint,) if endpoint is not None else topic.brokers.values():
            try:
                record = decode_message(await self.client.view(each, place.physical_offset, topic.name))
            except ResponseError:
                continue
            except RocketLensError:
                return None
            inner = [one for one in taken_apart(record) if one.unique_key == sent.unique_key]
            if inner:
                return inner[0].detached()
        return None

    async def catch_up(self, topic: TargetTopic) -> bool:
        """Wait until the brokers of a topic have indexed what is in their logs; whether they have, and say so."""
        deadline = asyncio.get_running_loop().time() + CAUGHT_UP_SECONDS
        for endpoint in topic.brokers.values():
            while True:
                try:
                    behind = (await self.client.runtime_figures(endpoint)).get(BEHIND_FIGURE, "")
                except ResponseError:  # not for this account
                    await asyncio.sleep(1)
                    behind = ""
                if behind in ("", "0"):
                    break
                if asyncio.get_running_loop().time() > deadline:
                    return False
                await asyncio.sleep(0.05)
        return True
