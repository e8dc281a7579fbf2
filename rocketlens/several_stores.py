"""Several stores asked as one, as a name server's brokers are: what `rocketlens.open` returns for their directories."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, TypeVar, Unpack

from protocol.errors import ConfigError
from protocol.message import Message
from protocol.question import LARGEST, Answer, Question
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
    from storage.search.lookup import LookupStep
    from storage.store.extents import QueueExtent

Result = TypeVar("Result")

OF_ONE_STORE = "it is about one store: open it alone"


@documented
class SeveralStores(Source):
    """The stores of several brokers; what is asked of a topic is asked of every store that has it.

    What only one broker can answer, as a pull does, is answered where one of them has the topic.
    """

    why_not: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("life", "pending", "space", "doctor", "info", "groups"), OF_ONE_STORE
    )

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
        found = self._each(lambda store: store.view(id, topic=topic, damaged=damaged))
        # An offset message id names the host: of the stores that have a message there one may be the host's.
        ours = {where: each for where, each in found.items() if each and not each.notes}
        return merged(ours or found)

    def _query(self, question: Question) -> Answer:
        topic = question.topic
        stores = self._having(topic)
        if len(stores) > 1 and question.before_physical_offset < LARGEST:
            raise ConfigError(f"a cursor belongs to one store, and topic {topic} is in several, open {_one_of(stores)}")
        found = {where: store._query(question) for where, store in (stores or self._stores).items()}
        return merged(found, question.maximum)

    def _find(self, question: Question) -> Answer:
        return joined(self._each(lambda store: store._find(question)), question)

    def _looked_up(
        self, texts: list[str], topic: str | None, kind: str | None, should_stop: Callable[[], bool]
    ) -> "Iterator[LookupStep]":
        from storage.search.lookup import LookupStep

        for store in self._stores.values():
            found = store.look_up(texts, topic=topic, kind=kind, should_stop=should_stop)
            for piece in found.pieces():
                yield LookupStep(tuple(piece), found.progress, found.notes)

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

    def search(
        self,
        *,
        topic: str | None = None,
        exhaustive: bool = False,
        should_stop: Callable[[], bool] = never,
        **options: Unpack[SearchOptions],
    ) -> "Search":
        if topic is None:
            raise ConfigError("search of several stores: name a topic that one of them has, or open one")
        return self._only(topic).search(topic=topic, exhaustive=exhaustive, should_stop=should_stop, **options)

    def topics(self) -> Listed[Topic]:
        found = self._each(Store.topics)
        return Listed(
            map(Topic, sorted({topic.name for each in found.values() for topic in each})),
            (f"{where}: {note}" for where, each in found.items() for note in each.notes),
            is_whole=all(each.is_whole for each in found.values()),
        )

    def queues(self, topic: str) -> "list[QueueExtent]":
        return self._only(topic).queues(topic)

    def refresh(self) -> None:
        self._each(Store.refresh)

    def close(self) -> None:
        self._each(Store.close)

    def __repr__(self) -> str:
        return f"<SeveralStores {', '.join(self._stores)}>"

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


def _one_of(stores: Mapping[str, Store]) -> str:
    return f"one of them: {', '.join(stores)}"
