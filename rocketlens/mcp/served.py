"""A store that a server serves, as a source: what one client of its HTTP port may see, and in the time that it has.

What the page's API asks is asked here by the methods of a source, with the same rights, masks and threads.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self, Unpack

from broker.service.kept_work import KEPT_SECONDS, WAITED_SECONDS
from broker.web.api.application import Api
from broker.web.api.find import refusal_to
from broker.web.api.groups import NO_TOPIC, seen_pairs
from broker.web.api.life import seen_life
from broker.web.api.pending import ReadPending, require_waiting
from broker.web.api.request_context import RequestContext
from protocol.errors import ConfigError
from protocol.find_place import FindPlace
from protocol.message import Message
from protocol.question import Answer, KeyKind, Question, parts_of, places_of
from rocketlens.answers import Group, Listed, Topic, found_messages
from rocketlens.arguments import (
    MOST_PULLED,
    SearchOptions,
    check_maximum,
    check_place,
    criteria_of,
    id_of,
    never,
    subscription,
)
from rocketlens.mcp.tool_context import StillRunning
from rocketlens.named_life import life_of
from rocketlens.searching import Search
from rocketlens.source import Source, documented
from rocketlens.store import pull_store
from storage.doctor.examine import Diagnosis
from storage.filter.hidden import refuse_hidden
from storage.life.message_life import MessageLife
from storage.life.pending import BEGINNING, DeliveryState, Pending, PendingMessage, PendingTopic, PendingWindow
from storage.life.transactions import outcomes
from storage.search.engine import Stop
from storage.search.engine import search as search_store
from storage.search.find import Finder
from storage.search.step import Step
from storage.store.extents import QueueExtent, queue_extents
from storage.store.topic_catalog import known_topics, queues_of_topic

NOT_ALL: Final = "not all topics were searched in the time"
LEFT_OUT: Final = "messages that this account may not read are left out"


@documented
class ServedSource(Source):
    """What one client may see of a store that is served."""

    def __init__(self, api: Api, context: RequestContext) -> None:
        """Ask for the client of a context."""
        self._api, self._context = api, context

    def _find(self, question: Question, cursor: str | None = None) -> Answer:
        context, store = self._context, self._context.store
        if question.topic:
            context.require_right(question.topic)
        names = [question.topic] if question.topic else context.topics() if parts_of(question.reading) else []
        finder = Finder(
            store,
            question,
            names,
            is_time_up=lambda: context.is_time_up,
            refusal=lambda message: refusal_to(context, message),
            mask=context.mask,
        )
        finder.go_on(None if cursor is None else FindPlace.parse(cursor))
        ends = outcomes(store, (each.message for each in finder.found))
        return found_messages(
            question,
            names,
            finder.found,
            finder.readings,
            (ends.get(each.message.physical_offset, "") for each in finder.found),
            notes=[
                *([f"something may be missing: {finder.incomplete}"] if finder.incomplete else []),
                *([NOT_ALL] if finder.place is not None and not finder.is_cut else []),
            ],
            next_page=finder.place,
            lost="; ".join(store.config.notes_of_topics(names)),
        )

    def _named(self, text: str, topic: str | None, kind: str | None = None) -> Answer:
        """What a text names, of which not all need be listed, but all topics searched. Raises StillRunning."""
        found = self.find(text, topic=topic, kind=kind)
        if NOT_ALL in found.notes:
            raise StillRunning(f"{NOT_ALL}: call again, with more seconds or a topic")
        return found

    def view(self, id: int | str, *, topic: str | None = None, damaged: bool = False) -> Answer:
        text, reasons = id_of(id), []
        for kind, _, _ in places_of(text):
            found = self._named(text, topic, kind)
            if found:
                return found
            reasons.append(found.reason)
        named = self._named(text, topic, KeyKind.UNIQUE.words)
        return named if named else replace(named, reason="; ".join((*reasons, named.reason)))

    def pull(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        maximum: int = MOST_PULLED,
        tag: str | None = None,
        sql: str | None = None,
    ) -> Answer:
        context = self._context
        check_place(queue_id, offset)
        context.require_topic(topic)
        wanted = subscription(tag, sql)
        refuse_hidden(context.mask, tag, sql)
        found = pull_store(context.store, topic, queue_id, offset, check_maximum(maximum), wanted, sql)
        shown = self._shown(found.messages)
        notes = (*found.notes, LEFT_OUT) if len(shown) < len(found) else found.notes
        return replace(found, messages=shown, notes=notes)

    def search(
        self,
        *,
        topic: str | None = None,
        exhaustive: bool = False,
        should_stop: Stop = never,
        **options: Unpack[SearchOptions],
    ) -> Search:
        context = self._context
        if topic is not None:
            context.require_topic(topic)
        elif not context.is_admin:
            raise ConfigError("topic: only administrators may search without a topic")
        steps = search_store(
            context.store,
            replace(criteria_of(topic, options), masked=context.mask.rules),
            limit=options.get("limit"),
            cursor=options.get("cursor"),
            should_stop=lambda: context.gone.is_set() or should_stop(),
            # Half of the cores stay with the clients of the other port.
            threads=max((os.cpu_count() or 2) // 2, 1),
            exhaustive=exhaustive,
            is_abandoned=context.gone.is_set,
        )
        return Search(self._seen_steps(steps))

    def _seen_steps(self, steps: Iterable[Step]) -> Iterator[Step]:
        """Steps with what may be seen; what was found counts that alone, and says nothing of the rest."""
        account, found = self._context.account, 0
        is_bounded = account is not None and not account.is_unbounded
        for step in steps:
            shown = self._shown(step.messages)
            found += len(shown)
            notes = (*step.notes, LEFT_OUT) if is_bounded else step.notes
            yield replace(step, messages=shown, progress=replace(step.progress, found=found), notes=notes)

    def _shown(self, messages: Iterable[Message]) -> tuple[Message, ...]:
        """Of some messages those that may be read, masked."""
        context = self._context
        return tuple(context.mask.message(each) for each in messages if context.may_read_message(each))

    def life(self, text: str, *, topic: str | None = None, trace_topics: Iterable[str] = ()) -> MessageLife:
        return life_of(id_of(text), lambda key: seen_life(self._context, key, topic), lambda: self._named(text, topic))

    def pending(self) -> Pending:
        return SeenPending(self._api, self._context)  # type: ignore[return-value]  # what tools ask of one

    def doctor(self) -> Diagnosis:
        state = self._api.examinations.examined(self._context, KEPT_SECONDS)
        if state.problem is not None:
            raise ConfigError(state.problem)
        if state.is_running or state.outcome is None:
            raise StillRunning(f"the examination takes {state.seconds:.0f} s so far: call again with the cursor")
        return state.outcome.diagnosis

    def topics(self) -> Listed[Topic]:
        store, context = self._context.store, self._context
        found, more = known_topics(store)
        seen = [each for each in found if context.may_read(each[0])]
        notes = [*filter(None, (more,)), *store.config.notes_of_topics(name for name, *_ in seen)]
        return Listed((Topic(*each) for each in seen), notes, is_whole=not more)

    def queues(self, topic: str) -> list[QueueExtent]:
        context = self._context
        context.require_topic(topic)
        queues = queue_extents(context.store, topic, queues_of_topic(context.store, topic))
        return Listed(queues, context.store.config.notes_of_topics((topic,)))

    def groups(self) -> list[Group]:
        context = self._context

        def check() -> None:
            if context.is_time_up:
                raise StillRunning("what groups have popped is being counted: it goes on, call again with the cursor")

        popped = context.service.popped.wait(check)
        offsets: dict[str, dict[str, dict[int, int]]] = {}
        for group, topic in seen_pairs(context):
            of_group = offsets.setdefault(group, {})
            if topic != NO_TOPIC:
                of_group[topic] = context.service.offsets.offsets_of(group, topic)
        return Listed(
            Group(name, each, None if popped is None else popped.get(name, {})) for name, each in offsets.items()
        )


class SeenPending:
    """What of the messages that wait a client may see: the part of :class:`storage.life.pending.Pending` tools ask.

    They are read once it is known that they may be seen: when a page of them, or their topics, are asked for.
    """

    def __init__(self, api: Api, context: RequestContext) -> None:
        self._api, self._context = api, context
        self._held: ReadPending | None = None

    def _read(self, window: PendingWindow) -> Pending:
        """What was read, for this client alone. Raises `ApiError` where it may not be seen, StillRunning."""
        require_waiting(self._context, window.topic)
        if self._held is None:
            state = self._api.waiting_messages.read(self._context, KEPT_SECONDS)
            if state.problem is not None:
                raise ConfigError(state.problem)
            if state.is_running or state.outcome is None:
                raise StillRunning(f"{state.progress:,} messages are read: it goes on, call again with the cursor")
            if not state.outcome.lock.acquire(timeout=WAITED_SECONDS):
                raise StillRunning("a page for another client is being read: call again with the cursor")
            self._held = state.outcome
        return self._held.pending

    @property
    def as_of(self) -> DeliveryState:
        """Up to when deliveries are known of what was read."""
        assert self._held is not None
        return self._held.pending.as_of

    @property
    def incomplete(self) -> str | None:
        """What may be missing of what was read."""
        assert self._held is not None
        return self._held.pending.incomplete

    def topics(self, window: PendingWindow) -> list[PendingTopic]:
        """What waits, by the topic that it goes to."""
        return [each for each in self._read(window).topics(window) if self._context.may_read(each.topic)]

    def page(
        self, window: PendingWindow, limit: int, behind: tuple[int, int, int] = BEGINNING
    ) -> tuple[list[PendingMessage], tuple[int, int, int] | None]:
        """A page of the messages, masked."""
        context = self._context
        found, following = self._read(window).page(window, limit, behind)
        seen = (each for each in found if context.may_read_message(each.message))
        return [
            replace(
                each,
                message=context.mask.message(each.message),
                group=each.group if each.group is None or context.may_see_group(each.group) else None,
            )
            for each in seen
        ], following

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._held is not None:
            self._held.lock.release()


def sentences_read(context: RequestContext, fields: dict[str, Any], asked: Iterable[str]) -> None:
    """Have the sentences of an answer name no topic that the client may not read."""
    texts = set(asked)
    with suppress(KeyError):
        fields["notes"] = list(dict.fromkeys(context.readable(each, texts) for each in fields["notes"]))
    if fields.get("reason"):
        fields["reason"] = context.readable(fields["reason"], texts)
