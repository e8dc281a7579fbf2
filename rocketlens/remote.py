"""The messages of brokers that run, over the network: what `rocketlens.connect_async` returns."""

import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence, Sized
from contextlib import aclosing
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, TypeVar, Unpack

import msgspec

from broker.cluster.client import (
    MOST_OF_A_UNIQUE_KEY,
    MOST_QUEUES,
    TOOLS_GROUP,
    Client,
    ClientError,
    Credentials,
    QueueQuestion,
    ResponseError,
    decoded_records,
    each_of,
)
from broker.endpoint import Endpoint
from protocol.codes import BROKER_FIGURE, CLUSTER_FIGURE, STATE_FIGURE, ResponseCode
from protocol.errors import ConfigError, NoSuchTopic, ProtocolError, RocketLensError, StoreError
from protocol.message import Message, decode_message
from protocol.message_id import MessageId
from protocol.offset_keys import split_offset_key
from protocol.question import (
    KIND_OF_WORDS,
    LARGEST,
    NOT_FOUND_BY_OFFSET,
    PAGE,
    Answer,
    KeyKind,
    Listing,
    Question,
    concerns_tags,
    newest_of,
    other_host,
    other_topic,
    parts_of,
    place_of,
    places_of,
    reading_of,
    taken_apart,
)
from protocol.sys_flag import has_inner_messages
from protocol.system_topics import LIGHT_PREFIX
from rocketlens.answers import POPPED_NOT_KNOWN, Group, Info, Listed, Topic, found_messages, merged
from rocketlens.arguments import (
    MOST_FOUND,
    MOST_PULLED,
    SearchOptions,
    Subscription,
    Time,
    check_maximum,
    check_place,
    criteria_of,
    id_of,
    key_question,
    never,
    nothing_with,
    pulled,
    stored_between,
    subscription,
    text_question,
    unreported,
)
from rocketlens.by_id import at_place
from rocketlens.source import documented
from storage.amounts import counted
from storage.names import did_you_mean, similar_names

if TYPE_CHECKING:
    import ssl

    from broker.service.store_answers import SentNotes
    from protocol.find_place import FindPlace
    from rocketlens.remote_pending import AsyncPending
    from rocketlens.searching import AsyncSearch
    from storage.doctor.examine import Diagnosis
    from storage.life.message_life import MessageLife
    from storage.search.step import Step
    from storage.space.whole import Space
    from storage.store.extents import QueueExtent

Result = TypeVar("Result")

OffsetsOfTopics: TypeAlias = dict[str, dict[int, int]]
"""The offsets that a group has committed, by topic and queue id."""

AT_ONCE: Final = 32
"""Topics that are asked about at the same time."""

ROUTE_SECONDS: Final = 5.0
"""How long the brokers of a topic are known: several questions about all topics ask a name server once."""

ABSENT: Final = (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.INVALID_PARAMETER)
"""How a broker answers a pull from a topic or a queue that it does not have."""


NAME_A_TOPIC: Final = "Name with `topic` one that the account may read."

OF_A_STORE: Final = "of all brokers a RocketLens server alone answers it over the network, open the store"


class NotABroker(ClientError):
    """A server does not know a request that brokers know, and is no name server that would name one."""


def connect_async(
    address: str | None = None,
    *,
    access_key: str | None = None,
    secret_key: str | None = None,
    tls: "bool | ssl.SSLContext" = False,
    group: str = TOOLS_GROUP,
    timeout_seconds: float = 15.0,
    connect_timeout_seconds: float = 3.0,
) -> "AsyncRemoteStore":
    """Ask a broker at ``HOST:PORT``, any RocketMQ broker or a RocketLens server, or those that a name server names.

    :func:`connect` is for a program without an event loop, :func:`connect_async` for one with a loop of asyncio.
    Connections are made when something is first asked. `access_key` and `secret_key` sign every request, where the
    broker asks for that. `tls` is True for TLS with the authorities that this machine trusts, or an `ssl.SSLContext`.
    `group` is the consumer group of pulls, by default that of RocketMQ's tools, which every broker has; name another
    where accounts have rights by group, one that exists, since some brokers make those that do not.
    Each answer is waited for `timeout_seconds` at most. Without an address :meth:`Source.view` alone is possible,
    which then dials the address in an offset message id.

    Raises :class:`ConfigError` for an invalid address; every failure to get an answer is a :class:`ClientError`.

    >>> async def bodies():
    ...     async with rocketlens.connect_async("127.0.0.1:10911") as store:
    ...         return [message.body for message in await store.query("TopicTest", key="hotkey", maximum=2)]
    >>> asyncio.run(bodies())
    [b'hot 38', b'hot 39']
    """
    if (access_key is None) != (secret_key is None):
        raise ConfigError("access_key and secret_key: give both or neither")
    if not (timeout_seconds > 0 and connect_timeout_seconds > 0):
        raise ConfigError("timeout_seconds and connect_timeout_seconds: expected more than 0")
    credentials = Credentials(access_key, secret_key) if access_key is not None and secret_key is not None else None
    client = Client(
        connect_timeout_seconds=connect_timeout_seconds,
        timeout_seconds=timeout_seconds,
        tls=_tls_context(tls),
        credentials=credentials,
    )
    return AsyncRemoteStore(client, None if address is None else Endpoint.parse(address), group)


def _tls_context(tls: "bool | ssl.SSLContext") -> "ssl.SSLContext | None":
    if not isinstance(tls, bool):
        return tls
    if not tls:
        return None
    import ssl

    return ssl.create_default_context()


@documented
class AsyncRemoteStore:
    """The messages of brokers, from `rocketlens.connect_async`: an async context manager, for one event loop.

    Its methods are those of a :class:`Source`, to be awaited; a search and what follows a topic are iterated over with
    ``async for``, as are the messages of what is pending.
    """

    def __init__(self, client: Client, server: Endpoint | None, group: str) -> None:
        """Use `rocketlens.connect_async`."""
        self._open_client, self._server, self._group = client, server, group
        self._routes: dict[str, tuple[float, dict[str, Endpoint]]] = {}
        self._other_brokers: set[Endpoint] = set()
        self._is_closed = False

    async def view(self, id: int | str, *, topic: str | None = None, damaged: bool = False) -> Answer:
        if damaged:
            raise ConfigError("damaged: a broker sends intact records only, open its store")
        text = id_of(id)
        places, server = places_of(text), self._server
        message_id = places[0][2] if places else None
        if server is None and message_id is not None:
            server = Endpoint(message_id.address.ip, message_id.address.port)
        if server is None:
            raise ClientError(f"{text}: only an offset message id contains an address to connect to; name a server")
        elsewhere = Answer()
        for _, physical_offset, message_id in places:
            found = await self._at(server, physical_offset, topic)
            if message_id is None or (found and not other_host(found[0], message_id)):
                return at_place(found, topic)
            elsewhere = at_place(found, topic, message_id)
        if places and self._server is None and not topic:
            return elsewhere
        found = await self._by_unique_key(server, text, topic)
        return found if found or not places else elsewhere

    async def query(
        self,
        topic: str,
        *,
        key: str | None = None,
        unique_key: str | None = None,
        tag: str | None = None,
        begin: Time | None = None,
        end: Time | None = None,
        maximum: int = PAGE,
        cursor: int | None = None,
        copies: bool = False,
    ) -> Answer:
        texts = {KeyKind.KEY: key, KeyKind.UNIQUE: unique_key, KeyKind.TAG: tag}
        question = key_question(topic, texts, begin, end, maximum, cursor, copies=copies)
        try:
            brokers = await self._brokers_of(topic)
        except NoSuchTopic as error:
            return Answer(reason=f"{nothing_with(question)}; {error}")
        if len(brokers) > 1 and question.before_physical_offset < LARGEST:
            raise ConfigError(
                f"a cursor belongs to one broker, and topic {topic} has {len(brokers)}, ask one: {_named(brokers)}"
            )
        found = await self._of_brokers(brokers, question)
        if found:
            return found
        reason = await self._with_similar(found.reason, topic)
        lost = [await self._lost(each, topic) for each in brokers.values()]
        return replace(found, reason="; ".join(dict.fromkeys(filter(None, (reason, *lost)))))

    async def _of_brokers(self, brokers: dict[str, Endpoint], question: Question, *, are_pages: bool = True) -> Answer:
        """Join the answers of the brokers of a topic; without the cursor to older matches unless `are_pages`."""
        found = [await self._pages(endpoint, question) for endpoint in brokers.values()]
        found = found if are_pages else [replace(each, cursor=None) for each in found]
        return merged(dict(zip(_labels(brokers), found, strict=True)), question.maximum)

    async def _with_similar(self, reason: str, topic: str) -> str:
        """Add to a reason which topic may be meant, if the server has none of this name."""
        proposed = await self._similar(topic)
        return f"{reason}; {did_you_mean(proposed)}" if proposed else reason

    async def _similar(self, topic: str) -> list[str]:
        """The topics that may be meant instead of one that the server does not have."""
        try:
            names = [each.name for each in await self._known_topics(self._named_server())]
        except ClientError:  # an account may see messages and not the list of topics
            return []
        return [] if topic in names else similar_names(topic, names)

    async def find(
        self,
        text: str,
        *,
        topic: str | None = None,
        begin: Time | None = None,
        end: Time | None = None,
        maximum: int = MOST_FOUND,
        kind: str | None = None,
        cursor: str | None = None,
    ) -> Answer:
        from protocol.find_place import MOST_PASSED, FindPlace

        question = text_question(text, topic, begin, end, maximum, kind)
        start = None if cursor is None else FindPlace.parse(cursor)
        is_among_ids = start is None or start.kind is KeyKind.ANY
        place, passed = (FindPlace() if is_among_ids else start) or FindPlace(), start.passed if start else 0
        server = self._named_server()
        parts = parts_of(kind)
        names: list[str] = [question.topic] if question.topic else []
        more: tuple[str, ...] = ()
        if parts and not names:
            known = await self._known_topics(server)
            names, more = [each.name for each in known], known.notes
        listing = Listing(question, goes_on=not is_among_ids, passed=passed)
        for at_id, physical_offset, message_id in places_of(question.text, kind) if is_among_ids else ():
            try:
                at = await self._found_at(server, physical_offset, question, message_id)
            except ResponseError as error:
                if not parts or error.code != ResponseCode.NO_PERMISSION:
                    raise
                at = Answer(reason=error.remark)  # the text may be something else too
            listing.read(at_id, "; ".join(filter(None, (at.reason, *at.notes))))
            listing.take_all(at_id, at)
        brokers = await each_of(names if parts else (), self._brokers_with, AT_ONCE)
        answers: list[tuple[KeyKind, Answer]] = []
        for kinds in parts:
            if listing.is_cut:
                break
            most = question.maximum + passed + 1  # one more than is listed says that there are more
            asked = [
                (
                    msgspec.structs.replace(
                        question, topic=name, kind=part, maximum=most, before_physical_offset=before
                    ),
                    where,
                )
                for name, where in zip(names, brokers, strict=True)
                for part in kinds
                if where and (before := place.left_of(kinds, part, name)) is not None
            ]
            listing.read(reading_of(kinds))
            found = await each_of(
                asked, lambda each: self._of_topic(each[1], each[0], is_named=bool(question.topic)), AT_ONCE
            )
            for (each, _), answer in zip(asked, found, strict=True):
                listing.take_all(each.kind.words, reversed(answer.messages))
                answers.append((each.kind, answer))
        endpoints = () if listing.found else dict.fromkeys(each for where in brokers for each in where.values())
        lost = [await self._lost(each, question.topic) for each in endpoints]
        behind = FindPlace.behind(listing.found, start) if listing.is_cut else None
        if behind is not None and len(where := dict(zip(names, brokers, strict=True)).get(behind.topic, {})) > 1:
            # Each broker has offsets of its own: those of the topic are collected anew, up to an end.
            count = sum((KIND_OF_WORDS[kind], each.topic) == behind[:2] for each, kind, _ in listing.found)
            behind = behind._replace(before=LARGEST, passed=count + (passed if behind[:2] == place[:2] else 0))
            if behind.passed > MOST_PASSED:
                behind, more = None, (*more, f"there are more messages: ask one of the brokers, {_named(where)}")
        return _found(question, names, listing, answers, "; ".join(dict.fromkeys(filter(None, lost))), more, behind)

    async def _of_topic(self, brokers: dict[str, Endpoint], question: Question, *, is_named: bool) -> Answer:
        """What the brokers of a topic answer; a note that it is refused, unless the topic `is_named` by who asks."""
        try:
            return await self._of_brokers(brokers, question, are_pages=False)
        except ResponseError as error:
            if is_named or error.code != ResponseCode.NO_PERMISSION:
                raise
            return Answer(notes=(f"topic {question.topic} is left out: {error.remark}",))

    async def _brokers_with(self, topic: str) -> dict[str, Endpoint]:
        """The brokers of a topic; none where it has no route."""
        try:
            return await self._brokers_of(topic)
        except NoSuchTopic:
            return {}

    async def pull(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        maximum: int = MOST_PULLED,
        tag: str | None = None,
        sql: str | None = None,
    ) -> Answer:
        check_place(queue_id, offset)
        wanted = subscription(tag, sql)
        maximum = min(check_maximum(maximum), MOST_PULLED)
        question = QueueQuestion(topic, queue_id, offset, maximum, self._group, wanted.text, wanted.kind)
        try:
            server = await self._broker_of(topic)
            answer = await self._client.pull(server, question)
        except NoSuchTopic as error:
            return Answer(reason=str(error))
        except ResponseError as error:
            if error.code not in ABSENT:
                raise
            return Answer(reason=str(error))
        messages, notes = pulled(decoded_records(server, answer.records), topic, offset, wanted)
        reason = "" if messages else f"{server} has nothing for queue {queue_id} of topic {topic}: {answer.remark}"
        return Answer(
            messages,
            notes=(*notes, answer.lost) if answer.lost else notes,
            reason=reason,
            next_offset=answer.next_offset,
            min_offset=answer.min_offset,
            max_offset=answer.max_offset,
        )

    def follow(
        self, topic: str, offsets: Mapping[int, int], *, tag: str | None = None, sql: str | None = None
    ) -> AsyncGenerator[list[Message]]:
        return self._following(topic, dict(offsets), subscription(tag, sql))

    async def _following(
        self, topic: str, offsets: dict[int, int], wanted: Subscription
    ) -> AsyncGenerator[list[Message]]:
        from rocketlens.remote_following import RemoteFollowing

        server = await self._broker_of(topic)
        async with aclosing(
            RemoteFollowing(self._client, server, topic, offsets, wanted, self._group).pieces()
        ) as pieces:
            async for piece in pieces:
                yield piece

    def search(
        self,
        *,
        topic: str | None = None,
        exhaustive: bool = False,
        should_stop: Callable[[], bool] = never,
        **options: Unpack[SearchOptions],
    ) -> "AsyncSearch":
        from rocketlens.remote_search import RemoteSearch, parse_cursor
        from rocketlens.searching import AsyncSearch
        from storage.search.matcher import Matcher

        if topic is None or exhaustive:
            raise ConfigError("search: a broker sends the queues of a topic and not its log, name the topic alone")
        # Without the topic: a light queue holds messages that bear another one.
        matcher = Matcher(criteria_of(None, options))
        limit = options.get("limit")
        if limit is not None:
            check_maximum(limit)
        start = parse_cursor(options.get("cursor"))

        async def steps() -> "AsyncIterator[Step]":
            server = await self._broker_of(topic)
            known = {each.name: each.read_queues for each in await self._known_topics(server)}
            if topic not in known and not topic.startswith(LIGHT_PREFIX):  # light queues are in no table of topics
                raise NoSuchTopic(topic, did_you_mean(await self._similar(topic)))
            count = known.get(topic, 1)
            # Where only the name is known (an account, a configuration that cannot be read) the queues have offsets.
            queues = sorted(await self._client.topic_offsets(server, topic)) if count is None else range(max(count, 0))
            run = RemoteSearch(self._client, server, topic, queues[:MOST_QUEUES], matcher, start, limit, self._group)
            async for step in run.steps():
                if step.is_last:
                    step = replace(step, notes=(*step.notes, *(await self._notes(server, topic)).topics))
                yield step
                if should_stop():
                    return

        return AsyncSearch(steps())

    async def life(self, text: str, *, topic: str | None = None, trace_topics: Iterable[str] = ()) -> "MessageLife":
        from broker.service.store_answers import decode_life
        from rocketlens.named_life import keys_named, with_reason

        fields = {"uniqueKey": id_of(text), "topic": topic or "", "traceTopics": ",".join(trace_topics)}
        life = await self._of_store("life", fields, decode_life)
        if life.events:
            return life
        found = await self.find(text, topic=topic)
        if not (named := keys_named(found)):
            return with_reason(life, found)
        return replace(await self._of_store("life", fields | {"uniqueKey": named[0]}, decode_life), named=named)

    async def pending(self) -> "AsyncPending":
        from broker.service.store_answers import SentPending, decode_answer
        from rocketlens.remote_pending import AsyncPending
        from storage.life.pending import Pending

        def decode(data: bytes) -> SentPending:
            return decode_answer(data, SentPending)

        first = sent = await self._of_store("pending", {}, decode)
        rows = list(sent.rows)
        while sent.rows:
            sent = await self._of_store("pending", {"behind": str(len(rows))}, decode)
            rows += sent.rows
        return AsyncPending(Pending.of_rows(rows, first.as_of, first.incomplete), self._messages_at)

    async def _messages_at(self, places: Sequence[int]) -> list[Message | None]:
        """The messages at physical offsets of the one broker that there is."""
        server = self._named_server()
        found = await each_of(places, lambda place: self._at(server, place, None), AT_ONCE)
        return [next(iter(each), None) for each in found]

    async def space(
        self,
        *,
        begin: Time | None = None,
        end: Time | None = None,
        broker_config: str | PathLike[str] | None = None,
        report: Callable[[int], None] = unreported,
    ) -> "Space":
        from broker.service.store_answers import decode_answer
        from storage.space.broker_settings import BrokerSettings, read_broker_settings
        from storage.space.whole import Space

        settings = BrokerSettings() if broker_config is None else read_broker_settings(Path(broker_config))
        first, last = stored_between(begin, end)
        fields = {name: str(value) for name, value in settings.said.items()}
        fields |= {"beginTimestamp": str(first), "endTimestamp": str(last)}
        return await self._of_store("space", fields, lambda data: decode_answer(data, Space), report)

    async def doctor(self) -> "Diagnosis":
        from broker.service.store_answers import decode_answer
        from storage.doctor.examine import Diagnosis

        return await self._of_store("doctor", {}, lambda data: decode_answer(data, Diagnosis))

    async def topics(self) -> Listed[Topic]:
        server = self._named_server()
        known = await self._known_topics(server)
        notes = dict.fromkeys((*known.notes, *(await self._notes(server)).topics))
        return Listed(known, notes, is_whole=known.is_whole)

    async def _known_topics(self, server: Endpoint) -> Listed[Topic]:
        """The topics of a broker, or of a name server by their names; of one of ours those that it knows nevertheless.

        Where it cannot read their configuration, or an account may not see all. Raises ResponseError.
        """
        try:
            queues = await self._client.topic_queues(server)
        except ResponseError as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return Listed(map(Topic, await self._client.topics(server)))
            if error.code not in (ResponseCode.SYSTEM_ERROR, ResponseCode.NO_PERMISSION):
                raise
            return await self._topics_nevertheless(server, error)
        return Listed(Topic(name, each.read_queue_nums, each.write_queue_nums) for name, each in sorted(queues.items()))

    async def _topics_nevertheless(self, server: Endpoint, refusal: ResponseError) -> Listed[Topic]:
        """The topics that a RocketLens server knows, or that an account may read; raises the refusal of others."""
        from broker.service.store_answers import SentTopics, decode_answer

        try:
            sent = decode_answer(await self._client.ask_store(server, {"question": "topics"}), SentTopics)
        except (ResponseError, ProtocolError):
            if refusal.code != ResponseCode.NO_PERMISSION:
                raise refusal from None
            raise ResponseError(server, refusal.code, f"{refusal.remark.strip()} {NAME_A_TOPIC}") from None
        return Listed((Topic(*each) for each in sent.topics), filter(None, (sent.more,)), is_whole=not sent.more)

    async def queues(self, topic: str) -> "list[QueueExtent]":
        from storage.store.extents import QueueExtent

        try:
            server = await self._broker_of(topic)
            offsets = await self._client.topic_offsets(server, topic)
        except NoSuchTopic:
            return []
        except ResponseError as error:
            if error.code not in (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SYSTEM_ERROR):
                raise
            return []
        queues = (
            QueueExtent(queue_id, each.min_offset, each.max_offset, None, _known_time(each.last_update_timestamp))
            for queue_id, each in sorted(offsets.items())
        )
        return Listed(queues, (await self._notes(server, topic)).topics)

    async def info(self) -> Info:
        from storage.store.extents import StoreExtent

        async def ask(endpoint: Endpoint) -> tuple[Endpoint, dict[str, str], StoreExtent | None]:
            figures = await self._client.runtime_figures(endpoint)
            return endpoint, figures, await self._answered(endpoint, StoreExtent, question="extent")

        server, figures, extent = await self._of_broker(self._named_server(), ask)
        numbers = {name: int(text) for name, text in figures.items() if re.fullmatch(r"[0-9]{1,19}", text, re.ASCII)}
        reached: dict[str, Any] = {
            "min_offset": numbers.get("commitLogMinOffset", 0),
            "end_offset": numbers.get("commitLogMaxOffset", 0),
            "first_timestamp": numbers.get("earliestMessageTimeStamp"),
        }
        return Info(
            where=str(server),
            broker=figures.get(BROKER_FIGURE),
            cluster=figures.get(CLUSTER_FIGURE),
            state=figures.get(STATE_FIGURE),
            version=figures.get("brokerVersionDesc"),
            topics=await _count(self._known_topics(server)),
            groups=await _count(self._of_broker(self._named_server(), self._offsets_of_groups)),
            **(reached if extent is None else asdict(extent)),
        )

    async def groups(self) -> Listed[Group]:
        from broker.service.store_answers import SentPopped

        async def ask(endpoint: Endpoint) -> tuple[Sequence[str], SentPopped | None, dict[str, OffsetsOfTopics]]:
            offsets = await self._offsets_of_groups(endpoint)
            sent = await self._answered(endpoint, SentPopped, question="popped")
            return (await self._notes(endpoint)).groups, sent, offsets

        notes, sent, offsets = await self._of_broker(self._named_server(), ask)
        popped = None if sent is None else sent.counts
        if sent is not None and popped is None:
            notes = [*notes, POPPED_NOT_KNOWN]
        elif sent is not None and sent.age >= 1:
            notes = [*notes, f"what groups have popped was counted {sent.age} s ago"]
        found = (
            Group(name, offsets[name], None if popped is None else popped.get(name, {})) for name in sorted(offsets)
        )
        return Listed(found, notes)

    async def _offsets_of_groups(self, endpoint: Endpoint) -> dict[str, OffsetsOfTopics]:
        """The committed offsets of all groups of a broker, by name."""
        offsets: dict[str, OffsetsOfTopics] = {name: {} for name in await self._client.groups(endpoint)}
        for place, of_queues in (await self._client.consumer_offsets(endpoint)).items():
            names = split_offset_key(place)
            if names is not None:
                topic, group = names
                offsets.setdefault(group, {})[topic] = of_queues
        return offsets

    async def close(self) -> None:
        self._is_closed = True
        await self._open_client.__aexit__(None, None, None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._server or 'of no server'}>"

    @property
    def _client(self) -> Client:
        """The connections. Raises the error of ours that they are closed."""
        if self._is_closed:
            raise RocketLensError(f"{self!r} is closed")
        return self._open_client

    async def _of_store(
        self,
        question: str,
        fields: dict[str, str],
        decode: Callable[[bytes], Result],
        report: Callable[[int], None] = unreported,
    ) -> Result:
        """Ask a RocketLens server about its whole store; raises ConfigError for other brokers."""

        async def ask(endpoint: Endpoint) -> tuple[Endpoint, bytes]:
            return endpoint, await self._client.ask_store(endpoint, {"question": question, **fields}, report)

        server = self._named_server()
        try:
            endpoint, data = await self._of_broker(server, ask)
        except ResponseError as error:
            if error.code == ResponseCode.INVALID_PARAMETER:
                raise ConfigError(error.remark) from None
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise ConfigError(f"`{question}`: {OF_A_STORE}") from None
            raise
        except NotABroker:
            raise ConfigError(f"`{question}`: {OF_A_STORE}") from None
        try:
            return decode(data)
        except (ProtocolError, StoreError) as error:
            raise ClientError(f"{endpoint} answered what cannot be read: {error}") from error

    # ------------------------------------------------------------------ which server

    def _named_server(self) -> Endpoint:
        if self._server is None:
            raise ConfigError("no server was named to connect to")
        return self._server

    async def _brokers_of(self, topic: str) -> dict[str, Endpoint]:
        """The brokers of a topic by name: those that a name server names, or the one that we are connected to."""
        server = self._named_server()
        known_since, known = self._routes.get(topic, (0.0, {}))
        if known and time.monotonic() - known_since < ROUTE_SECONDS:
            return known
        try:
            brokers = await self._client.brokers_of(server, topic)
        except ResponseError as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            raise NoSuchTopic(topic, did_you_mean(await self._similar(topic))) from None
        found = {"": server} if brokers is None else brokers
        self._routes[topic] = time.monotonic(), found
        return found

    async def _broker_of(self, topic: str) -> Endpoint:
        brokers = await self._brokers_of(topic)
        if len(brokers) != 1:
            where = f"is on several brokers, connect to one of them: {_named(brokers)}" if brokers else "has no broker"
            raise ClientError(f"topic {topic} {where}")
        return next(iter(brokers.values()))

    # ------------------------------------------------------------------ one message

    async def _of_broker(self, server: Endpoint, ask: Callable[[Endpoint], Awaitable[Result]]) -> Result:
        """Ask what only a broker answers; of a name server the one broker that it names. Raises ClientError."""
        answers = await self._of_each_broker(server, ask)
        if len(answers) != 1:
            where = f"names several brokers, connect to one of them: {_named({n: e for n, (e, _) in answers.items()})}"
            raise ClientError(f"{server} {where if answers else 'names no broker'}")
        ((_, answer),) = answers.values()
        return answer

    async def _of_each_broker(
        self, server: Endpoint, ask: Callable[[Endpoint], Awaitable[Result]]
    ) -> dict[str, tuple[Endpoint, Result]]:
        """Ask a broker, or each broker that a name server names, what only brokers answer; the answers by name."""
        try:
            return {"": (server, await ask(server))}
        except ResponseError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            brokers = await self._client.brokers(server)
            if brokers is None:
                raise NotABroker(f"{server} is neither a broker nor a name server: {error}") from None
        return {name: (endpoint, await ask(endpoint)) for name, endpoint in brokers.items()}

    async def _at(self, server: Endpoint, physical_offset: int, topic: str | None) -> Answer:
        """The messages at a physical offset of a broker, or of each that a name server names."""

        async def ask(endpoint: Endpoint) -> Answer:
            try:
                record = await self._client.view(endpoint, physical_offset, topic or "")
            except ResponseError as error:
                if error.code in (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.NO_PERMISSION):
                    raise
                return Answer(reason=f"no message there: {_absence(error, physical_offset)}")
            try:
                return Answer(tuple(taken_apart(decode_message(record, physical_offset=physical_offset))))
            except StoreError as error:
                return Answer(reason=f"{endpoint} answered bytes that are not a message: {error}")

        try:
            answers = await self._of_each_broker(server, ask)
        except ResponseError as error:
            if error.code != ResponseCode.NO_PERMISSION or not topic:
                raise
            return await self._at(server, physical_offset, None)  # it may be another topic's: that is for us to say
        if len(answers) == 1:
            ((_, found),) = answers.values()
            return found
        messages = [message for _, found in answers.values() for message in found]
        reasons = [f"{name}: {found.reason}" for name, (_, found) in answers.items() if found.reason]
        reason = "; ".join(reasons) or f"{server} names no broker"
        return Answer(tuple(messages), reason="" if messages else reason)

    async def _found_at(
        self, server: Endpoint, physical_offset: int, question: Question, message_id: MessageId | None
    ) -> Answer:
        """The messages at a physical offset that a text names; where an id names a message that is gone, its copies.

        A RocketLens server alone is asked for these.
        """
        topic = question.topic or None
        at = await self._at(server, physical_offset, topic)
        if at or message_id is None:
            return at_place(at, topic, message_id)
        from broker.service.store_answers import decode_answer
        from storage.search.origin_copies import say_copies

        asked = {"question": "copies", "uniqueKey": question.text}

        async def ask(endpoint: Endpoint) -> list[bytes]:
            return decode_answer(await self._client.ask_store(endpoint, asked), list[bytes])

        try:
            answers = await self._of_each_broker(server, ask)
        except (ResponseError, NotABroker, ProtocolError) as error:
            is_refused = isinstance(error, ResponseError) and error.code == ResponseCode.NO_PERMISSION
            return replace(at, reason=f"{at.reason}; copies of it are listed to administrators") if is_refused else at
        records = b"".join(record for _, each in answers.values() for record in each)
        copies = [each for each in decoded_records(server, records) if not other_topic(each, topic)][: question.maximum]
        return Answer(tuple(copies), reason=f"{at.reason}; copies of it: {say_copies(copies)}") if copies else at

    async def _lost(self, server: Endpoint, topic: str) -> str:
        """Why a RocketLens server may lack what was not found, in clauses; empty where it says nothing of it."""
        notes = await self._notes(server, topic)
        return "; ".join(filter(None, (*notes.topics, notes.lost)))

    async def _notes(self, server: Endpoint, topic: str = "") -> "SentNotes":
        """What a RocketLens server does not read of a topic, or of all topics and groups; nothing of other brokers."""
        from broker.service.store_answers import SentNotes

        return await self._answered(server, SentNotes, question="notes", topic=topic) or SentNotes()

    async def _answered(self, server: Endpoint, kind: type[Result], **fields: str) -> Result | None:
        """What a RocketLens server answers to a question about its store; None of others, or where that is refused."""
        from broker.service.store_answers import decode_answer

        if server in self._other_brokers:
            return None
        try:
            return decode_answer(await self._client.ask_store(server, fields), kind)
        except (ResponseError, ProtocolError) as error:
            if isinstance(error, ResponseError) and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                self._other_brokers.add(server)
            return None

    async def _by_unique_key(self, server: Endpoint, key: str, topic: str | None) -> Answer:
        """Ask for a unique key in one topic, else in every topic that the server knows."""
        try:
            names = [topic] if topic else [each.name for each in await self._known_topics(server)]
        except ResponseError as error:
            raise ClientError(f"{key} may be a unique key: name its topic ({error})") from error

        async def ask(name: str) -> Answer:
            brokers = {"": server} if self._server is None else await self._brokers_with(name)
            return await self._of_brokers(brokers, Question(name, key, KeyKind.UNIQUE, MOST_OF_A_UNIQUE_KEY))

        answers = await each_of(names, ask, AT_ONCE)
        if messages := [message for found in answers for message in found]:
            return Answer(tuple(sorted(messages, key=lambda message: message.physical_offset)))
        where = f"in topic {topic}" if topic else f"in any of {counted(len(names), 'topic')}"
        reason = f"no message with unique key {key} {where}"
        details = answers[-1].details if answers else ""
        return Answer(reason=await self._with_similar(reason, topic) if topic else reason, details=details)

    # ------------------------------------------------------------------ messages by key

    async def _pages(self, endpoint: Endpoint, question: Question) -> Answer:
        """The newest matches of one broker; several pages only where the broker knows cursors."""
        pages: list[Sequence[Message]] = []
        count, before, maximum = 0, question.before_physical_offset, question.maximum
        while True:
            asked = msgspec.structs.replace(question, maximum=min(maximum - count, PAGE), before_physical_offset=before)
            page = await self._client.query(endpoint, asked)
            # A Java broker compares hashes alone, leaves the rest to its clients, and repeats a message that has one
            # key several times; of a unique key any broker gives more than are asked for.
            matching = {
                (place_of(message), message.queue_id): message
                for record in decoded_records(endpoint, page.records)
                for message in question.messages_in(record)
                if message.physical_offset < before
                and (has_inner_messages(record.sys_flag) or question.is_answered_by(message))
            }
            found = _ascending(list(matching.values()))
            kept, cursor = newest_of(found, maximum - count), page.cursor
            if len(kept) < len(found):
                cursor = kept[0].physical_offset
            pages.append(kept)
            count += len(kept)
            if count >= maximum or cursor is None or cursor >= before or not page.records:
                break
            before = cursor
        return Answer(
            tuple(message for matching in reversed(pages) for message in matching),
            cursor=cursor if count else None,
            notes=(f"something may be missing: {page.incomplete}",) if page.incomplete else (),
            reason="" if count else nothing_with(question),
            details="" if count else f"{endpoint} answered: {page.remark}",
        )


async def _count(listed: Awaitable[Sized]) -> int | None:
    """Count what is listed; None if a server cannot read all of it, as a damaged configuration."""
    try:
        found = await listed
    except ResponseError as error:
        if error.code != ResponseCode.SYSTEM_ERROR:
            raise
        return None
    return None if isinstance(found, Listed) and not found.is_whole else len(found)


def _found(
    question: Question,
    names: Sequence[str],
    listing: Listing,
    answers: Sequence[tuple[KeyKind, Answer]],
    lost: str,
    more: Sequence[str],
    behind: "FindPlace | None",
) -> Answer:
    """Say what is to be said of a list that brokers' answers came to; `lost`: what may be missing of an empty one.

    `more` are sentences about the topics that were asked about, `behind` is where the list goes on.
    """
    from protocol.system_topics import Stage, stage_of
    from storage.life.transactions import outcomes_among

    found, of_tags = listing.found, concerns_tags([each.kind for each in listing.found])
    notes = [*more, *(note for kind, each in answers if of_tags or kind is not KeyKind.TAG for note in each.notes)]
    ends = outcomes_among(each.message for each in found)
    outcomes = [ends.get((each.message.store_host, each.message.physical_offset), "") for each in found]
    halves = (each.message for end, each in zip(outcomes, found, strict=True) if not end)
    if any(stage_of(message.topic) is Stage.HALF for message in halves):
        notes.append("whether a half message was rolled back or did not end is said of a store, not through a broker")
    return found_messages(
        question,
        names,
        found,
        listing.readings,
        outcomes,
        notes=notes,
        next_page=behind,
        lost=lost,
        details="" if found else "; ".join(dict.fromkeys(each.details for _, each in answers[-1:] if each.details)),
    )


def _absence(error: ResponseError, physical_offset: int) -> str:
    """Why a broker has no message at a physical offset: what one of ours says, or all that another one answers."""
    known = f"{NOT_FOUND_BY_OFFSET}, {physical_offset}: "
    return error.remark.removeprefix(known) if error.remark.startswith(known) else str(error)


def _known_time(timestamp: int) -> int | None:
    """A time of a broker's answer in ms; None for what stands there for none: 0, or −1 for a message that is gone."""
    return timestamp if timestamp > 0 else None


def _ascending(messages: list[Message]) -> list[Message]:
    """Messages in the order of the log, unless they come in that of their times, as from several logs of a tier."""
    times = [(message.store_timestamp, message.physical_offset) for message in messages]
    return messages if times == sorted(times) else sorted(messages, key=lambda message: message.physical_offset)


def _labels(brokers: dict[str, Endpoint]) -> list[str]:
    return [f"{name} ({endpoint})" for name, endpoint in brokers.items()]


def _named(brokers: dict[str, Endpoint]) -> str:
    return ", ".join(_labels(brokers))
