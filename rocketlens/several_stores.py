"""Several stores asked as one, as a name server's brokers are: what `rocketlens.open` returns for their directories."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, ClassVar, TypeAlias, TypeVar, Unpack

from protocol.errors import ConfigError, NoSuchTopic
from protocol.host_address import HostAddress
from protocol.message import Message
from protocol.question import LARGEST, Answer, FoundBy, Question, place_of
from rocketlens.answers import Listed, Topic, joined, merged
from rocketlens.arguments import (
    MOST_PULLED,
    SearchOptions,
    never,
)
from rocketlens.source import Source, documented
from rocketlens.store import Store

if TYPE_CHECKING:
    from rocketlens.searching import Search
    from storage.life.message_life import MessageLife
    from storage.search.lookup import LookupStep
    from storage.search.step import Step
    from storage.store.extents import QueueExtent

Result = TypeVar("Result")

OF_ONE_STORE = "it is about one store: open it alone"

Places: TypeAlias = dict[int, str | None]
"""Where the stores of a list go on, by their numbers."""

CURSOR = re.compile(r"([0-9]{1,6})/(.*)", re.ASCII | re.DOTALL)
"""Where a search of several stores goes on: the number of a store, and the cursor in it, if it has begun there."""


@documented
class SeveralStores(Source):
    """The stores of several brokers; what is asked of a topic is asked of every store that has it.

    What only one broker can answer, as a pull does, is answered where one of them has the topic.
    """

    why_not: ClassVar[Mapping[str, str]] = dict.fromkeys(("pending", "space", "doctor", "info", "groups"), OF_ONE_STORE)

    def __init__(self, stores: Sequence[Store]) -> None:
        """Use `rocketlens.open`."""
        if not stores:
            raise ConfigError("expected the directories of stores, got none")
        self._stores = {str(store.path): store for store in stores}

    @property
    def stores(self) -> Mapping[str, Store]:
        """Each store, by its directory."""
        return self._stores

    def view(self, id: int | str, *, topic: str | None = None, damaged: bool = False) -> Answer:
        found = self._answers(lambda store: store.view(id, topic=topic, damaged=damaged))
        # An offset message id names the host: of the stores that have a message there one may be the host's.
        ours = {where: each for where, each in found.items() if each and not each.notes}
        return merged(ours or found)

    def _query(self, question: Question) -> Answer:
        topic = question.topic
        stores = self._having(topic)
        if len(stores) > 1 and question.before_physical_offset < LARGEST:
            raise ConfigError(f"a cursor belongs to one store, and topic {topic} is in several, open {_one_of(stores)}")
        return merged(self._answers(lambda store: store._query(question), stores), question.maximum)

    def _find(self, question: Question, cursor: str | None = None) -> Answer:
        from protocol.cursors import decode_cursor, encode_cursor

        # Where each store goes on: at its beginning, at a cursor of its own, or nowhere any more.
        places = dict.fromkeys(range(len(self._stores))) if cursor is None else decode_cursor(cursor, Places)
        if not all(0 <= number < len(self._stores) for number in places):
            raise ConfigError("this is no cursor of an answer of these stores")
        start = {where: places[number] for number, where in enumerate(self._stores) if number in places}
        asked = {where: self._stores[where] for where in start}
        found = self._answers(lambda store: store._find(question, start[str(store.path)]), asked)
        answer = joined(found, question)
        listed = set(map(place_of, answer))
        left = zip(sorted(places), (_behind(each, listed, start[where]) for where, each in found.items()), strict=True)
        rest = {number: place for number, (place, has_more) in left if has_more}
        return replace(answer, next_page=encode_cursor(rest) if rest else None)

    def _looked_up(
        self, texts: list[str], topic: str | None, kind: str | None, should_stop: Callable[[], bool]
    ) -> "Iterator[LookupStep]":
        from storage.search.lookup import LookupStep

        for where, store in self._stores.items():
            found = store.look_up(texts, topic=topic, kind=kind, should_stop=should_stop)
            for piece in found.pieces():
                yield LookupStep(tuple(replace(each, store=where) for each in piece), found.progress, found.notes)

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
        return self._only(topic).pull(topic, queue_id, offset, maximum=maximum, tag=tag, sql=sql)

    def follow(
        self, topic: str, offsets: Mapping[int, int], *, tag: str | None = None, sql: str | None = None
    ) -> Iterator[list[Message]]:
        return self._only(topic).follow(topic, offsets, tag=tag, sql=sql)

    def follow_each(
        self, topic: str, offsets: Mapping[str, Mapping[int, int]], *, tag: str | None = None, sql: str | None = None
    ) -> Iterator[tuple[str, list[Message]]]:
        """As :meth:`follow`, of all stores: each piece with the directory of its store; `offsets` are by directory."""
        from rocketlens.following import in_turn

        each = self._stores.items()
        return in_turn({where: store._looks(topic, offsets.get(where, {}), tag, sql) for where, store in each})

    def search(
        self,
        *,
        topic: str | None = None,
        exhaustive: bool = False,
        should_stop: Callable[[], bool] = never,
        **options: Unpack[SearchOptions],
    ) -> "Search":
        from rocketlens.searching import Search

        stores = (self._having(topic) if topic else {}) or self._stores
        first, cursor = self._place_of(options.get("cursor"))
        left = [(number, where) for number, where in enumerate(self._stores) if number >= first and where in stores]

        def ask(where: str, cursor: str | None, limit: int | None) -> Search:
            asked: SearchOptions = {**options, "cursor": cursor, "limit": limit}
            return stores[where].search(topic=topic, exhaustive=exhaustive, should_stop=should_stop, **asked)

        # What cannot be is refused at once: by the first store.
        begun = ask(left[0][1], cursor if left[0][0] == first else None, options.get("limit")) if left else None
        return Search(_one_after_the_other(left, begun, ask, options.get("limit")))

    def _place_of(self, cursor: str | None) -> tuple[int, str | None]:
        """The number of the store in which a search goes on, and where in it; raises ConfigError."""
        if cursor is None:
            return 0, None
        found = CURSOR.fullmatch(cursor)
        if found is None or int(found[1]) >= len(self._stores):
            raise ConfigError(f"cursor {cursor[:80]!r} is not valid for a search of {len(self._stores)} stores")
        return int(found[1]), found[2] or None

    def life(self, text: str, *, topic: str | None = None, trace_topics: Iterable[str] = ()) -> "MessageLife":
        trace_topics = tuple(trace_topics)
        found = self._each(lambda store: store.life(text, topic=topic, trace_topics=trace_topics))
        having = {where: each for where, each in found.items() if each.events}
        if len(having) > 1:
            raise ConfigError(f"what {text} names is in several stores, open {_one_of(having)}")
        return next(iter((having or found).values()))

    def topics(self) -> Listed[Topic]:
        found = self._each(Store.topics)
        return Listed(
            map(Topic, sorted({topic.name for each in found.values() for topic in each})),
            (f"{where}: {note}" for where, each in found.items() for note in each.notes),
            is_whole=all(each.is_whole for each in found.values()),
        )

    def queues(self, topic: str) -> "list[QueueExtent]":
        return self._only(topic).queues(topic)

    def _complete_keys(self) -> None:
        self._each(Store._complete_keys)

    def refresh(self) -> None:
        self._each(Store.refresh)

    def close(self) -> None:
        self._each(Store.close)

    def __repr__(self) -> str:
        return f"<SeveralStores {', '.join(self._stores)}>"

    def _answers(self, ask: Callable[[Store], Answer], stores: Mapping[str, Store] | None = None) -> dict[str, Answer]:
        """What each of some stores, by default of all, has found, by its directory, which each message is given."""
        found = {where: ask(store) for where, store in (stores or self._stores).items()}
        return {where: replace(each, stores=(where,) * len(each)) for where, each in found.items()}

    def _each(self, ask: Callable[[Store], Result]) -> dict[str, Result]:
        """What each store answers, by its directory."""
        return {where: ask(store) for where, store in self._stores.items()}

    def _having(self, topic: str) -> dict[str, Store]:
        """The stores that have a topic, by directory."""
        having = self._each(lambda store: any(each.name == topic for each in store.topics()))
        return {where: self._stores[where] for where, has_it in having.items() if has_it}

    def _only(self, topic: str) -> Store:
        """The one store that has a topic, the first one where none has; raises ConfigError where several have."""
        stores = self._having(topic)
        if len(stores) > 1:
            raise ConfigError(f"topic {topic} is in several stores, open {_one_of(stores)}")
        return next(iter((stores or self._stores).values()))


def _one_after_the_other(
    stores: Sequence[tuple[int, str]],
    begun: "Search | None",
    ask: "Callable[[str, str | None, int | None], Search]",
    limit: int | None,
) -> "Iterator[Step]":
    """The steps of a search of stores by their numbers and directories, of which the first one has begun.

    Raises NoSuchTopic where all say that the topic is nowhere.
    """
    from storage.search.progress import ProgressReport
    from storage.search.step import Step

    done, notes, absences = ProgressReport(0, 0, 0, 0.0), [], []
    for place, (number, where) in enumerate(stores):
        found = ask(where, None, None if limit is None else limit - done.found) if begun is None else begun
        begun, behind = None, f"{stores[place + 1][0]}/" if place + 1 < len(stores) else None
        before = done
        try:
            for piece in found.pieces():
                done = before.and_then(found.progress)
                cursor = behind if found.cursor is None else f"{number}/{found.cursor}"
                yield Step(tuple(piece), done, cursor, store=where)
        except NoSuchTopic as error:
            absences.append(error)
        notes += [f"{where}: {note}" for note in found.notes]
        if found.cursor is not None:
            yield Step((), done, f"{number}/{found.cursor}", is_last=True, notes=tuple(notes))
            return
    if absences and len(absences) == len(stores):
        raise absences[0]
    yield Step((), done, None, is_last=True, notes=tuple(notes))


def _behind(
    found: Answer, listed: Set[tuple[HostAddress, int, int, int]], cursor: str | None
) -> tuple[str | None, bool]:
    """Where a store goes on behind what is listed of its answer, which began at a cursor; and whether it does."""
    from protocol.find_place import FindPlace

    rows = list(zip(found, found.kinds, strict=True))
    front = [FoundBy(*row) for row in takewhile(lambda row: place_of(row[0]) in listed, rows)]
    if len(front) == len(rows):
        return found.next_page, found.next_page is not None
    start = None if cursor is None else FindPlace.parse(cursor)
    return (FindPlace.behind(front, start).text if front else cursor), True


def _one_of(stores: Mapping[str, object]) -> str:
    return f"one of them: {', '.join(stores)}"
