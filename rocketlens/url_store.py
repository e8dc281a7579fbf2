"""A store behind a URL, read by tasks where it lies: what `rocketlens.open` returns for a URL."""

import contextlib
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar, Unpack, cast

import msgspec

from protocol.errors import ConfigError, NotAStore, RocketLensError, StoreError
from protocol.message import Message
from protocol.question import (
    KIND_OF_WORDS,
    PARTS,
    PHYSICAL_OFFSET,
    Answer,
    FoundBy,
    KeyKind,
    Listing,
    Question,
    other_host,
    parts_of,
    places_of,
    reading_of,
)
from rocketlens.answers import Group, Info, Listed, Topic, found_messages, section_of
from rocketlens.arguments import (
    MOST_PULLED,
    SearchOptions,
    criteria_of,
    id_of,
    never,
    nothing_with,
)
from rocketlens.by_id import at_place
from rocketlens.hidden_whole import Hiding
from rocketlens.opening import StoreArguments
from rocketlens.source import Source, documented
from rocketlens.store import Store
from storage.files.own_directories import temporary_directory
from storage.layout.store_layout import EXPECTED
from storage.patterns.mask import mask_of

if TYPE_CHECKING:
    from rocketlens.searching import Search
    from spark_jobs.places.remote_tree import RemoteTree
    from spark_jobs.run.engine import EngineOptions
    from spark_jobs.search.searched_store import SearchedStore
    from storage.doctor.examine import Diagnosis
    from storage.life.message_life import MessageLife
    from storage.life.pending import Pending
    from storage.search.lookup import LookupStep
    from storage.search.step import Step
    from storage.store.extents import QueueExtent

Found = TypeVar("Found")

FETCHED: Final = "of a store behind a URL not all of the log is read: fetch it, and open the directory"
LISTED_SECONDS: Final = 1.0
"""How long what a listing had is taken for what lies behind the URL."""

STAYS: Final = "to a store behind a URL nothing comes while it is read: follow the broker's own, or a server"
NOT_BY_TAG: Final = "of a store behind a URL only a search finds tags"


class _Copy:
    """A hollow copy of a store behind a URL, and the store in it; it is gone when it is closed, or nobody reads it."""

    def __init__(self, tree: "RemoteTree", rules: tuple[str, ...]) -> None:
        """Make it; raises NotAStore for a tree that is none."""
        from spark_jobs.places.hollow_copy import HollowCopy
        from spark_jobs.places.place_names import COPIES

        if not tree.files:
            raise NotAStore(tree.url, expected=EXPECTED, found="nothing there")
        stack = contextlib.ExitStack()
        self.close = weakref.finalize(self, stack.close)
        self._tree = tree
        self._root = stack.enter_context(temporary_directory(f".{COPIES}", Path(tempfile.gettempdir())))
        self._files = HollowCopy(tree, self._root)
        stack.enter_context(self._files.read_here())
        with self._settled():
            self._store = Store(self._root, StoreArguments(masked=rules), warns=True, keeps_state=False)

    @property
    def is_sound(self) -> bool:
        """Whether all that was looked at could be fetched."""
        return self._files.failure is None

    def is_of(self, tree: "RemoteTree") -> bool:
        """Whether it is one of a tree, and sound."""
        return self._tree == tree and self.is_sound

    def read(self, work: Callable[[Store], Found]) -> Found:
        """Do some work in the store; raises RocketLensError where not all that it read could be fetched."""
        with self._settled():
            return work(self._store)

    def named(self, found: Found) -> Found:
        """An answer in which paths of the copy are those behind the URL."""
        return renamed(found, self._tree.named(self._root))

    @contextlib.contextmanager
    def _settled(self) -> Iterator[None]:
        """Have files be read; raises RocketLensError where not all that was read could be fetched."""
        with self._named_errors():
            try:
                yield
            finally:
                self._files.settle()  # what was not fetched may be the reason for an error

    @contextlib.contextmanager
    def _named_errors(self) -> Iterator[None]:
        name = self._tree.named(self._root)
        try:
            yield
        except RocketLensError as error:
            if name(str(error)) == str(error):
                raise
            if isinstance(error, StoreError):
                kind = NotAStore if isinstance(error, NotAStore) else StoreError
                place, found = name(str(error.path)), error.found and name(str(error.found))
                raise kind(place, error.physical_offset, error.expected, found, name(error.what)) from error
            raise RocketLensError(name(str(error))) from error


def renamed(found: Found, name: Callable[[str], str]) -> Found:
    """An answer with other texts; what messages say stays."""
    changed: object
    if isinstance(found, str):
        changed = name(found) if type(found) is str else found
    elif isinstance(found, Listed):
        changed = Listed((renamed(each, name) for each in found), renamed(found.notes, name), is_whole=found.is_whole)
    elif isinstance(found, list | tuple) and type(found) in (list, tuple):
        changed = type(found)(renamed(each, name) for each in found)
    elif is_dataclass(found) and not isinstance(found, Message | type):
        changed = replace(found, **{each.name: renamed(getattr(found, each.name), name) for each in fields(found)})
    elif isinstance(found, msgspec.Struct):
        values = {each: renamed(getattr(found, each), name) for each in found.__struct_fields__}
        changed = msgspec.structs.replace(found, **values)
    else:
        return found
    return cast(Found, changed)


@documented
class UrlStore(Source):
    """A store that lies behind a URL, of which what a question needs is read.

    Searches and look-ups are made by processes of this machine, for every question anew. All else is read as in a
    directory, in a hollow copy whose files are filled when they are looked at; it stays for the next question as long
    as the files behind the URL are the same.
    """

    why_not: ClassVar[Mapping[str, str]] = {"follow": STAYS, "space": FETCHED}

    def __init__(
        self,
        url: str,
        storage: str,
        rules: Iterable[str],
        engine: "EngineOptions | None" = None,
        notify: Callable[[str], None] | None = None,
    ) -> None:
        """Use `rocketlens.open`; `storage` are the options of the file system, as JSON.

        An `engine` is the local one unless another is named; `notify` gets the lines for who waits for a cluster.
        """
        from spark_jobs.places.file_systems import refuse_page

        refuse_page(url)
        self._url, self._storage, self._mask = url, storage, mask_of(tuple(rules))
        self._engine, self._notify = engine, notify
        self._is_closed = False
        self._copy: _Copy | None = None
        self._listed_at = 0.0
        self._copying = threading.Lock()

    def view(self, id: int | str, *, topic: str | None = None, damaged: bool = False) -> Answer:
        if damaged:
            raise ConfigError("damaged: only intact records are read behind a URL")
        text = id_of(id)
        elsewhere = Answer()
        for _, physical_offset, message_id in places_of(text):
            found = at_place(self._at(physical_offset), topic, message_id)
            if message_id is None or (found and not other_host(found[0], message_id)):
                return self._shown(found)
            elsewhere = found
        if named := self._named(text, topic, (KeyKind.UNIQUE,)):
            return Answer(tuple(each.message for each in named))
        where = f"in topic {topic}" if topic else "in any topic"
        return self._shown(elsewhere) if elsewhere else Answer(reason=f"no message with unique key {text} {where}")

    def _query(self, question: Question) -> Answer:
        if question.kind is KeyKind.TAG:
            raise ConfigError(f"tag: {NOT_BY_TAG}")
        named = (each.message for each in self._named(question.text, None if question.copies else question.topic))
        before = question.before_physical_offset
        found = [each for each in named if question.is_answered_by(each) and each.physical_offset < before]
        kept = found[-question.maximum :]
        cursor = kept[0].physical_offset if len(kept) < len(found) else None
        return Answer(tuple(kept), cursor, reason="" if kept else nothing_with(question))

    def _find(self, question: Question, cursor: str | None = None) -> Answer:
        from protocol.find_place import FindPlace

        kind, topic = question.reading, question.topic or None
        start = None if cursor is None else FindPlace.parse(cursor)
        is_among_ids = start is None or start.kind is KeyKind.ANY
        parts = parts_of(kind)
        if kind == KeyKind.TAG.words:
            raise ConfigError(f"tag: {NOT_BY_TAG}")
        listing = Listing(question, goes_on=not is_among_ids, passed=start.passed if start else 0)
        for place, physical_offset, message_id in places_of(question.text, kind) if is_among_ids else ():
            at = at_place(self._at(physical_offset), topic, message_id)
            listing.read(place, "; ".join(filter(None, (at.reason, *at.notes))))
            listing.take_all(place, self._shown(at))
        first, last = question.begin_timestamp, question.end_timestamp
        named = [
            each
            for each in (self._named(question.text, topic, parts[0]) if parts else ())
            if each.kind == KeyKind.UNIQUE.words or first <= each.message.store_timestamp <= last
        ]
        if start is not None and not is_among_ids:
            left = [start.left_of(parts[0], KIND_OF_WORDS[each.kind], each.message.topic) for each in named]
            named = [
                each for each, before in zip(named, left, strict=True) if each.message.physical_offset < (before or 0)
            ]
        if parts:
            listing.read(reading_of(parts[0]))
        named.sort(key=lambda each: (*section_of(each), -each.message.physical_offset, -each.message.queue_offset))
        for found_by, alike in groupby(named, lambda each: each.kind):
            listing.take_all(found_by, (each.message for each in alike))
        if kind is None and not listing.is_cut:
            listing.read(KeyKind.TAG.words, NOT_BY_TAG)
        names = [topic] if topic else [each.name for each in self.topics()] if parts else []
        found = listing.found
        behind = FindPlace.behind(found, start) if listing.is_cut else None
        return found_messages(question, names, found, listing.readings, [""] * len(found), next_page=behind)

    def search(
        self,
        *,
        topic: str | None = None,
        exhaustive: bool = False,
        should_stop: Callable[[], bool] = never,
        **options: Unpack[SearchOptions],
    ) -> "Search":
        from rocketlens.searching import Search
        from spark_jobs.search.search import search_by_tasks
        from storage.search.matcher import Matcher

        criteria = replace(criteria_of(topic, options), masked=self._mask.rules)
        Matcher(criteria)  # what it refuses is refused at once
        self._check_open()

        def steps() -> "Iterator[Step]":
            with self._opened(topic) as searched:
                yield from search_by_tasks(
                    searched,
                    criteria,
                    engine=self._on(),
                    notify=self._notify,
                    limit=options.get("limit"),
                    cursor=options.get("cursor"),
                    should_stop=should_stop,
                    exhaustive=exhaustive,
                )

        return Search(steps(), Hiding(self._mask, warns=True))

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
        return self._read(lambda store: store.pull(topic, queue_id, offset, maximum=maximum, tag=tag, sql=sql))

    def life(self, text: str, *, topic: str | None = None, trace_topics: Iterable[str] = ()) -> "MessageLife":
        return self._read(lambda store: store.life(text, topic=topic, trace_topics=trace_topics))

    def pending(self) -> "Pending":
        copy = self._current()
        found = copy.read(lambda store: store.pending())
        found.as_of, found.incomplete = copy.named(found.as_of), copy.named(found.incomplete)
        in_store = found.messages_in_store
        return found.asking(lambda places: copy.read(lambda _: in_store(places)))

    def doctor(self) -> "Diagnosis":
        return self._read(lambda store: store.doctor())

    def topics(self) -> Listed[Topic]:
        return self._read(lambda store: store.topics())

    def queues(self, topic: str) -> "list[QueueExtent]":
        return self._read(lambda store: store.queues(topic))

    def info(self) -> Info:
        return self._read(lambda store: store.info())

    def groups(self) -> list[Group]:
        return self._read(lambda store: store.groups())

    def close(self) -> None:
        self._is_closed = True
        with self._copying:
            copy, self._copy = self._copy, None
        if copy is not None:
            copy.close()

    def _read(self, work: "Callable[[Store], Found]") -> Found:
        """The answer of the store as it is read in a directory."""
        copy = self._current()
        return copy.named(copy.read(work))

    def _current(self) -> "_Copy":
        """The hollow copy of what lies behind the URL now."""
        from spark_jobs.places.remote_tree import list_tree

        with self._copying:
            self._check_open()
            copy = self._copy
            if copy is not None and copy.is_sound and time.monotonic() < self._listed_at + LISTED_SECONDS:
                return copy
            tree = list_tree(self._url, self._storage)
            self._listed_at = time.monotonic()
            if copy is None or not copy.is_of(tree):
                # Others may still read the one before: it goes when the last of them has its answer.
                self._copy = copy = _Copy(tree, self._mask.rules)
            return copy

    def __repr__(self) -> str:
        return f"<UrlStore {self._url}{' (closed)' if self._is_closed else ''}>"

    def _on(self) -> "EngineOptions":
        """What runs the tasks."""
        from spark_jobs.run.engine import EngineOptions

        return self._engine or EngineOptions()

    def _check_open(self) -> None:
        if self._is_closed:
            raise RocketLensError(f"{self!r}: the store is closed")

    def _opened(self, topic: str | None) -> "contextlib.AbstractContextManager[SearchedStore]":
        """The store, looked at anew, with the queues of a topic."""
        from spark_jobs.search.searched_store import searched_url

        self._check_open()
        return searched_url(self._url, self._storage, topic)

    def _at(self, physical_offset: int) -> Answer:
        """The message at a physical offset."""
        found = self._found_by(str(physical_offset), None, PHYSICAL_OFFSET)
        return Answer(tuple(each.message for each in found), reason="" if found else "no message there")

    def _named(self, text: str, topic: str | None, parts: Sequence[KeyKind] = PARTS[0]) -> list[FoundBy]:
        """The messages with a unique key or a key, as they are shown; one of which the text is hidden is none."""
        self._mask.refuse_value("unique_key", text)
        self._mask.refuse_value("keys", text)
        found = [
            each._replace(message=self._mask.message(each.message))
            for each in self._found_by(text, topic, reading_of(parts))
        ]
        return [each for each in found if text in (*each.message.keys, each.message.unique_key)]

    def _found_by(self, text: str, topic: str | None, kind: str) -> list[FoundBy]:
        """The messages that one text names, as they are."""
        steps = self._looked_up([text], topic, kind, never)
        return [FoundBy(match.message.detached(), match.kind) for step in steps for match in step.matches]

    def _looked_up(
        self, texts: list[str], topic: str | None, kind: str | None, should_stop: Callable[[], bool]
    ) -> "Iterator[LookupStep]":
        from spark_jobs.search.look_up import looked_up_by_tasks

        with self._opened(None) as searched:
            yield from looked_up_by_tasks(searched, self._on(), self._notify, texts, topic, kind, should_stop)

    def _hiding(self) -> Hiding:
        return Hiding(self._mask, warns=True)

    def _shown(self, found: Answer) -> Answer:
        hiding = self._hiding()
        shown = replace(found, messages=tuple(map(hiding.mask.message, found)))
        hiding.warn()
        return shown
