"""A store directory, opened for reading: what `rocketlens.open` returns."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import asdict, replace
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import msgspec

from protocol.errors import RocketLensError, StoreError
from protocol.mask import NO_MASK, Mask
from protocol.message import Message, decode_message, decode_messages
from protocol.question import PAGE, Answer, KeyKind, Question, Reading, newest_of, parts_of
from protocol.system_topics import LIGHT_PREFIX, Stage, stage_of
from rocketlens.answers import POPPED_NOT_KNOWN, Group, Info, Listed, Topic, found_messages
from rocketlens.arguments import (
    MOST_PULLED,
    SearchOptions,
    Subscription,
    Time,
    check_maximum,
    check_place,
    criteria_of,
    filter_of,
    id_of,
    never,
    nothing_with,
    pulled,
    stored_between,
    subscription,
    unreported,
)
from rocketlens.by_id import find_in_store, find_surely
from rocketlens.hidden_whole import Hiding
from rocketlens.opening import StoreArguments, open_message_store
from rocketlens.source import Source, documented
from storage.layout.store_layout import recognise_with_tier
from storage.names import did_you_mean
from storage.patterns.mask import mask_of

if TYPE_CHECKING:
    from rocketlens.searching import Search
    from storage.doctor.examine import Diagnosis
    from storage.life.message_life import MessageLife
    from storage.life.pending import Pending
    from storage.patterns.mask import BoundedMask
    from storage.query.get_message import GetMessageResult
    from storage.search.criteria import Criteria
    from storage.search.lookup import LookupStep
    from storage.search.step import Step
    from storage.space.tally import Tally
    from storage.space.whole import Space
    from storage.store.extents import QueueExtent
    from storage.store.message_store import MessageStore, QueryAnswer


@documented
class Store(Source):
    """A store in a directory, opened by `rocketlens.open`.

    Every look-up waits for the disk. What the index lacks is scanned when a key is first asked for.
    """

    def __init__(self, path: Path, arguments: StoreArguments, *, warns: bool = False, keeps_state: bool = True) -> None:
        """Use `rocketlens.open`; with `keeps_state` what is found out is kept for the next time."""
        self._arguments, self._warns, self._keeps_state = arguments, warns, keeps_state
        self._mask = mask_of(arguments.rules)
        self._layout = recognise_with_tier(path, arguments.commit_log_directories or (), arguments.tier)
        self._store: MessageStore | None = None
        self._is_closed = False
        self._opening, self._changing = threading.Lock(), threading.Lock()

    @property
    def path(self) -> Path:
        """The directory of the store."""
        return self._layout.root

    @property
    def commit_log_directories(self) -> tuple[Path, ...]:
        """The directories of the log; empty if it is `commitlog/` in the store."""
        return self._arguments.commit_log_directories or ()

    @property
    def rules(self) -> tuple[str, ...]:
        """The mask rules."""
        return self._mask.rules

    def view(self, id: int | str, *, topic: str | None = None, damaged: bool = False) -> Answer:
        text = id_of(id)
        if self._store is None:
            self._check_open()
            # A few pages of the store's files may do, where opening the store may mean a gigabyte.
            found = find_surely(self._layout, text, topic)
            if found is not None:
                return self._shown(found)
        return self._shown(
            find_in_store(self._opened(with_keys=False), text, topic=topic, damaged=damaged, mask=self._mask)
        )

    def _query(self, question: Question) -> Answer:
        self._mask.refuse_value(question.kind.field, question.text)
        if not self._mask or question.kind is not KeyKind.KEY:
            return self._shown(query_store(self._opened(), question))
        # One that is hidden together with what stands beside it is none, and nothing says that it was looked at.
        found = query_store(self._opened(), question, self._mask.for_one_run())
        return self._shown(replace(found, details=""))

    def _find(self, question: Question, cursor: str | None = None) -> Answer:
        kind = question.reading
        is_key = bool(parts_of(kind))
        if kind is not None and not is_key and cursor is None and self._store is None:
            self._check_open()
            if found := find_surely(self._layout, question.text, question.topic or None, kind):
                messages = self._shown(found).messages
                return Answer(messages, kinds=(kind,) * len(messages), readings=(Reading(kind, len(messages)),))
        from protocol.find_place import FindPlace
        from storage.search.find import Finder
        from storage.store.topic_catalog import known_names

        hiding, store = self._hiding(), self._opened(with_keys=is_key)
        names, more = ([question.topic], "") if question.topic else known_names(store) if is_key else ([], "")
        finder = Finder(store, question, names, mask=hiding.mask)
        finder.go_on(None if cursor is None else FindPlace.parse(cursor))
        hiding.warn()
        ends: dict[int, str] = {}
        if halves := [each.message for each in finder.found if stage_of(each.message.topic) is Stage.HALF]:
            from storage.life.transactions import outcomes  # few are halves of transactions

            ends = outcomes(store, halves)
        return found_messages(
            question,
            names,
            finder.found,
            finder.readings,
            (ends.get(each.message.physical_offset, "") for each in finder.found),
            notes=filter(None, (f"something may be missing: {finder.incomplete}" if finder.incomplete else "", more)),
            next_page=finder.place,
            lost="; ".join(filter(None, (*store.config.notes_of_topics(names), store.why_lost))),
            details=finder.details,
        )

    def _looked_up(
        self, texts: list[str], topic: str | None, kind: str | None, should_stop: Callable[[], bool]
    ) -> "Iterator[LookupStep]":
        """The steps of a look-up."""
        from storage.search.lookup import LookupHere, look_up

        store = self._opened(with_keys=bool(parts_of(kind)))
        store.refuse_tier("`look_up`")
        return look_up(LookupHere(store), texts, topic=topic, kind=kind, should_stop=should_stop)

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
        check_place(queue_id, offset)
        wanted = self._subscription(tag, sql)
        store = self._opened(with_keys=False)
        return self._shown(pull_store(store, topic, queue_id, offset, check_maximum(maximum), wanted, sql))

    def follow(
        self, topic: str, offsets: Mapping[int, int], *, tag: str | None = None, sql: str | None = None
    ) -> Iterator[list[Message]]:
        from rocketlens.following import in_turn

        return (piece for _, piece in in_turn({"": self._looks(topic, offsets, tag, sql)}))

    def _looks(
        self, topic: str, offsets: Mapping[int, int], tag: str | None, sql: str | None
    ) -> Iterator[list[Message]]:
        """Yield the new messages of each poll, possibly none, for callers that follow several sources."""
        from rocketlens.following import StoreFollowing

        wanted, store = self._subscription(tag, sql), self._opened(with_keys=False)
        return self._shown_pieces(StoreFollowing(store, topic, dict(offsets), wanted).looks())

    def search(
        self,
        *,
        topic: str | None = None,
        exhaustive: bool = False,
        should_stop: Callable[[], bool] = never,
        **options: Unpack[SearchOptions],
    ) -> "Search":
        from rocketlens.searching import Search

        criteria, hiding = replace(criteria_of(topic, options), masked=self._mask.rules), self._hiding()
        limit, cursor = options.get("limit"), options.get("cursor")
        return Search(self._steps(criteria, hiding.mask, limit, cursor, should_stop, exhaustive=exhaustive), hiding)

    def _steps(
        self,
        criteria: "Criteria",
        mask: "BoundedMask",
        limit: int | None,
        cursor: str | None,
        should_stop: Callable[[], bool],
        *,
        exhaustive: bool,
    ) -> "Iterator[Step]":
        """The steps of a search."""
        from storage.search.engine import of_a_topic, search

        store = self._opened(with_keys=needs_keys(criteria, exhaustive=exhaustive))
        steps = search(
            store,
            criteria,
            limit=limit,
            cursor=cursor,
            exhaustive=exhaustive,
            should_stop=should_stop,
            mask=mask,
        )
        return of_a_topic(store, criteria.topic, steps)

    def search_records(
        self, topic: str | None, options: SearchOptions, should_stop: Callable[[], bool]
    ) -> "Iterator[Step] | None":
        """The records that a search finds, as they lie; None where that takes a look at their messages."""
        from storage.search.engine import search_records

        criteria = criteria_of(topic, options)
        times = (criteria.begin_timestamp, criteria.end_timestamp)
        if self._mask or criteria != replace(criteria_of(topic, {}), begin_timestamp=times[0], end_timestamp=times[1]):
            return None
        if (
            (topic or "").startswith(LIGHT_PREFIX)
            or options.get("limit") is not None
            or options.get("cursor") is not None
        ):
            return None
        store = self._opened(with_keys=False)
        is_tiered = store.queues.tier is not None
        return None if is_tiered else search_records(store, topic, times, should_stop=should_stop)

    def life(self, text: str, *, topic: str | None = None, trace_topics: Iterable[str] = ()) -> "MessageLife":
        from rocketlens.named_life import life_of
        from storage.life.message_life import find_life

        store = self._opened()
        store.refuse_tier("life")
        hiding, trace_topics = self._hiding(), tuple(trace_topics)

        def look(key: str) -> "MessageLife":
            return find_life(store, key, topic, trace_topics, mask=hiding.mask)

        life = life_of(id_of(text), look, lambda: self.find(text, topic=topic))
        hiding.warn()
        return life

    def pending(self) -> "Pending":
        from storage.life.pending import Pending

        store = self._opened(with_keys=False)
        if store.layout.is_tier_alone:  # a broker puts no waiting message into its tier
            store.refuse_tier("pending")
        hiding = self._hiding()
        return Pending(store, mask=hiding.mask, finish=hiding.warn)

    def space(
        self,
        *,
        begin: Time | None = None,
        end: Time | None = None,
        broker_config: str | PathLike[str] | None = None,
        report: Callable[[int], None] = unreported,
    ) -> "Space":
        from storage.columns.wanted import ALL_TIMES
        from storage.space.broker_settings import BrokerSettings, read_broker_settings
        from storage.space.whole import space_of

        settings = BrokerSettings() if broker_config is None else read_broker_settings(Path(broker_config))
        store = self._opened(with_keys=False)
        store.refuse_tier("space")
        lacks, times = store.config.notes_of_topics(), stored_between(begin, end)
        tally = self._tally(store, report, times)
        return space_of(store.commit_log, tally, settings, lacks, self._mask, is_narrowed=times != ALL_TIMES)

    def _tally(self, store: "MessageStore", report: Callable[[int], None], times: tuple[int, int]) -> "Tally":
        """Count all of the log that was stored between two times."""
        from storage.space.measure import measure

        return measure(store.commit_log, report=report, times=times)

    def doctor(self) -> "Diagnosis":
        from storage.doctor.examine import examine

        self._check_open()
        slots, entries = self._arguments.index_slots, self._arguments.index_entries
        vouched = None if slots is None or entries is None else (slots, entries)
        return examine(self.path, self.commit_log_directories, vouched)

    def topics(self) -> Listed[Topic]:
        from storage.store.topic_catalog import known_topics

        store = self._opened(with_keys=False)
        found, more = known_topics(store)
        notes = store.config.problems if store.config.lacks_reader else []
        notes = [*notes, *filter(None, (more,)), *store.config.notes_of_topics(name for name, *_ in found)]
        return Listed((Topic(*each) for each in found), notes, is_whole=not more)

    def queues(self, topic: str) -> "list[QueueExtent]":
        from storage.store.extents import queue_extents
        from storage.store.topic_catalog import queues_of_topic

        store = self._opened(with_keys=False)
        queues = queue_extents(store, topic, queues_of_topic(store, topic))
        return Listed(queues, store.config.notes_of_topics((topic,)))

    def info(self) -> Info:
        from storage.store.extents import store_extent
        from storage.store.topic_catalog import topic_names

        store = self._opened(with_keys=False)
        return Info(
            where=str(self.path),
            broker=store.identity.broker_name,
            cluster=store.identity.cluster,
            state=store.snapshot.state.word,
            **asdict(store_extent(store)),
            topics=_count(lambda: topic_names(store)),
            groups=_count(self._offsets_of_groups),
        )

    def groups(self) -> list[Group]:
        from storage.life.pop_log import count_popped

        popped = count_popped(self._opened(with_keys=False))
        offsets = self._offsets_of_groups()
        groups = (
            Group(name, offsets[name], None if popped is None else popped.get(name, {})) for name in sorted(offsets)
        )
        notes = self._opened(with_keys=False).config.notes_of_groups
        return Listed(groups, [*notes, POPPED_NOT_KNOWN] if popped is None else notes)

    def _offsets_of_groups(self) -> dict[str, dict[str, dict[int, int]]]:
        """The committed offsets of all groups, by name, topic and queue id."""
        from storage.layout.store_config import GROUPS

        config = self._opened(with_keys=False).config
        config.refuse_unknown(GROUPS)
        config.refuse_unknown_offsets()
        offsets: dict[str, dict[str, dict[int, int]]] = {name: {} for name in config.subscription_groups}
        for (name, topic), of_topic in config.consumer_offsets.items():
            offsets.setdefault(name, {})[topic] = dict(of_topic)
        return offsets

    def refresh(self) -> None:
        if self._store is not None:
            self._opened(with_keys=False).refresh()

    def close(self) -> None:
        with self._changing:
            self._is_closed, self._store = True, None

    def __repr__(self) -> str:
        return f"<Store {self.path}{' (closed)' if self._is_closed else ''}>"

    def _hiding(self) -> Hiding:
        """The mask of one answer."""
        return Hiding(self._mask, warns=self._warns)

    def _shown(self, found: Answer) -> Answer:
        """Apply the mask to an answer."""
        if not self._mask:
            return found
        hiding = self._hiding()
        found = replace(found, messages=tuple(map(hiding.mask.message, found.messages)))
        hiding.warn()
        return found

    def _shown_pieces(self, pieces: Iterable[list[Message]]) -> Iterator[list[Message]]:
        for piece in pieces:
            hiding = self._hiding()
            shown = list(map(hiding.mask.message, piece))
            hiding.warn()
            yield shown

    def _subscription(self, tag: str | None, sql: str | None) -> Subscription:
        """Parse a subscription; raises FilterSyntaxError, and ConfigError if it asks for masked fields."""
        wanted = subscription(tag, sql)
        if self._mask:
            from storage.filter.hidden import refuse_hidden

            refuse_hidden(self._mask, tag, sql)
        return wanted

    def _complete_keys(self) -> None:
        self._opened()

    def _check_open(self) -> None:
        if self._is_closed:
            raise RocketLensError(f"the store {self.path} is closed")

    def _opened(self, *, with_keys: bool = True) -> "MessageStore":
        """The store's files; `with_keys`: with every index file checked, and what the index lacks scanned."""
        with self._opening:
            self._check_open()
            store = self._store
            if store is None:
                budget = None if with_keys else 0
                store = open_message_store(
                    self.path, self._arguments, scan_budget=budget, check_budget=budget, keeps_state=self._keeps_state
                )
                with self._changing:
                    self._check_open()  # it may have been closed meanwhile, which does not wait
                    self._store = store
                return store
        if with_keys:
            store.finish_scan()
        return store


def _count(names: Callable[[], Sized]) -> int | None:
    """Count names; None if they are not known."""
    try:
        return len(names())
    except StoreError:
        return None


def needs_keys(criteria: "Criteria", *, exhaustive: bool) -> bool:
    """Whether a search uses the index, so that it must be checked and completed first."""
    return bool(criteria.topic and criteria.key and not exhaustive)


def pull_store(
    store: "MessageStore", topic: str, queue_id: int, offset: int, maximum: int, wanted: Subscription, sql: str | None
) -> Answer:
    """The messages of a queue of a store from a queue offset on, as they are, that a subscription wants.

    `sql` is its expression where it is SQL92.
    """
    from storage.query.get_message import TRANSFER_BYTES, get_message

    queues = store.snapshot.queues
    most = min(maximum, MOST_PULLED)
    result = get_message(queues, topic, queue_id, offset, most, TRANSFER_BYTES, filter_of(wanted))
    messages, notes = pulled(map(decode_message, result.records), topic, offset, wanted)
    if result.lost is not None:
        notes = (*notes, str(result.lost))
    reason = "" if messages else _why_nothing_pulled(result, topic, queue_id, offset)
    if sql is not None and reason:
        from storage.filter.absent_properties import note_of_some

        first = get_message(queues, topic, queue_id, offset, most, TRANSFER_BYTES)
        reason = "; ".join(filter(None, (reason, note_of_some(map(decode_message, first.records), sql))))
    return Answer(
        messages,
        notes=notes,
        reason=reason,
        next_offset=result.next_begin_offset,
        min_offset=result.min_offset,
        max_offset=result.max_offset,
    )


def query_store(store: "MessageStore", question: Question, mask: Mask = NO_MASK) -> Answer:
    """The newest matches of a store, collected in pages, each below the one before.

    With a `mask` those that have the key as they are shown; they come as they are. Of a batch in one record all that
    match are given, if that are more than `maximum` too.
    """
    from storage.life.message_copies import copy_topics, query_with_copies
    from storage.life.origins import Origins

    query, maximum = question, question.maximum
    topics, origins = copy_topics(store) if question.copies else [], Origins(store)
    messages: list[Message] = []
    while True:
        page = msgspec.structs.replace(query, maximum=min(maximum - len(messages), PAGE))
        found = query_with_copies(store.query, page, topics, origins)
        named = chain.from_iterable(map(query.messages_in, decode_messages(found.records)))
        messages = [each for each in named if not mask or question.text in mask.message(each).keys] + messages
        if len(messages) >= maximum or found.cursor is None:
            break
        query = msgspec.structs.replace(query, before_physical_offset=found.cursor)
    kept = newest_of(messages, maximum)
    return Answer(
        tuple(kept),
        cursor=kept[0].physical_offset if len(kept) < len(messages) else found.cursor if messages else None,
        notes=(f"something may be missing: {found.incomplete}",) if found.incomplete else (),
        reason="" if messages else _why_nothing_found(store, question, found),
        details="" if messages or found.refusal is not None else found.search.sentence(),
    )


def _why_nothing_found(store: "MessageStore", question: Question, answer: "QueryAnswer") -> str:
    """Say why a query found nothing, and which topic may be meant instead."""
    from storage.store.key_search import explain_queues
    from storage.store.topic_catalog import similar_topics

    if answer.refusal is not None:
        return answer.refusal
    queues, proposed = explain_queues(store, question.topic), similar_topics(store, question.topic)
    return "; ".join(filter(None, (nothing_with(question), queues, did_you_mean(proposed), store.why_lost)))


def _why_nothing_pulled(result: "GetMessageResult", topic: str, queue_id: int, offset: int) -> str:
    """Say why a pull brought no message."""
    first, end = result.min_offset, result.max_offset
    queue = f"queue {queue_id} of topic {topic}"
    if first >= end:
        return f"{queue} is empty, or not in the store"
    if not first <= offset < end:
        return f"{queue} has offsets {first} to {end - 1}, and {offset} is not one of them"
    return f"no message of {queue} passes the filter from offset {offset} to {result.next_begin_offset - 1}"
