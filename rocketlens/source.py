"""What can be asked of messages, wherever they are: the methods of all that `rocketlens.open` returns."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Self, TypeVar, Unpack

from protocol.errors import ConfigError
from protocol.message import Message
from protocol.question import PAGE, Answer, KeyKind, Question
from rocketlens.answers import Group, Info, Listed, Topic
from rocketlens.arguments import (
    MOST_FOUND,
    MOST_PULLED,
    SearchOptions,
    Time,
    key_question,
    never,
    text_question,
    unreported,
)

if TYPE_CHECKING:
    from rocketlens.hidden_whole import Hiding
    from rocketlens.looking_up import LookUp
    from rocketlens.searching import Search
    from storage.doctor.examine import Diagnosis
    from storage.life.message_life import MessageLife
    from storage.life.pending import Pending
    from storage.search.lookup import LookupStep
    from storage.space.whole import Space
    from storage.store.extents import QueueExtent

Asked = TypeVar("Asked", bound=type)


class Source:
    """Messages that can be asked for: a context manager, which may be used from several threads.

    Every method works on every kind of source, or raises :class:`ConfigError`, which says why it does not
    (docs/python.md has a table). A store that is read raises :class:`StoreError`, a broker that refuses
    :class:`ResponseError`, one that does not answer :class:`ClientError`; one that is closed :class:`Error`.
    """

    why_not: ClassVar[Mapping[str, str]] = {}
    """The methods that cannot be asked of this kind of source, each with a sentence that says why."""

    def _refusal(self, name: str) -> ConfigError:
        """The error of a method that cannot be asked of this source."""
        return ConfigError(f"`{name}`: {self.why_not[name]}")

    def view(self, id: int | str, *, topic: str | None = None, damaged: bool = False) -> Answer:
        """The message that an id names: an offset message id, a physical offset, or a unique key.

        A unique key names several messages where a producer sent again; `topic` narrows the search for one, else it is
        looked up in every topic. `damaged` shows a record with a wrong checksum too. The host in an offset message id
        need not be the store's.

        >>> store.view("7F00000100002A9F00000000000019B5")[0].body
        b'hot 0'
        >>> store.view(6581)[0].unique_key
        'FD000000000000000000000000000002708C30946E09687211CE0017'
        >>> store.view(6582).reason
        'no message there: physical offset 6582 lies inside the record that starts at 6581 (289 bytes)'
        """
        raise self._refusal("view")

    def query(
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
        """The newest `maximum` messages of a topic with a key, a unique key or a tag: exactly one of these is given.

        Stored between `begin` and `end`, both included, which do not narrow the search for a unique key. Where older
        matches are left out, the answer's `cursor` is passed to get them. With `copies` also those copies are found
        that wait, are retried or were given up under topics of the broker's own. Every broker of the topic is asked;
        other brokers than ours ignore `cursor` and `copies`.

        >>> len(store.query("TopicTest", key="hotkey"))
        40
        >>> [message.tags for message in store.query("TopicTest", tag="TagD", maximum=2)]
        ['TagD', 'TagD']
        """
        texts = {KeyKind.KEY: key, KeyKind.UNIQUE: unique_key, KeyKind.TAG: tag}
        return self._query(key_question(topic, texts, begin, end, maximum, cursor, copies=copies))

    def _query(self, question: Question) -> Answer:
        """The newest messages with a key, a unique key or a tag, ascending, and the cursor of older ones."""
        raise self._refusal("query")

    def find(
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
        """The messages that a text names, whatever it is: an id, an offset, a key or a tag; as the page's box does.

        In one topic or in all, at most `maximum`, stored between `begin` and `end`, which unique keys do not mind. With
        a `kind` the text is taken for that alone: ``offset message id``, ``physical offset``, ``unique key``, ``key``,
        ``unique key or key`` or ``tag``. A broker is asked about each topic, which takes one with many topics some
        time. The `next_page` of an answer, passed as `cursor`, gets the messages behind it.

        >>> found = store.find("BB")
        >>> [(message.keys, message.tags, kind) for message, kind in zip(found, found.kinds)]
        [(['BB'], 'TagA', 'key'), (['tagcollide2'], 'BB', 'tag')]
        """
        return self._find(text_question(text, topic, begin, end, maximum, kind), cursor)

    def _find(self, question: Question, cursor: str | None = None) -> Answer:
        """What the text of a question names, from a cursor on."""
        raise self._refusal("find")

    def look_up(
        self,
        texts: Iterable[str],
        *,
        topic: str | None = None,
        kind: str | None = None,
        should_stop: Callable[[], bool] = never,
    ) -> "LookUp":
        """The messages that very many texts name, a million and more: the index is gone over once, or the log.

        Each text is an offset message id of the store, else a unique key or a key; with a `kind` of :meth:`find`, but
        not a tag, all are taken for that alone, as for a ``physical offset``. In one topic or in all, in the order of
        the log; a broker is asked for one text after the other. `should_stop` is asked often. Raises
        :class:`ConfigError` for texts that a mask hides.

        >>> [(match.text, match.kind) for match in store.look_up(["BB", "7F00000100002A9F00000000000019B5"])]
        [('BB', 'key'), ('7F00000100002A9F00000000000019B5', 'offset message id')]
        """
        from rocketlens.looking_up import LookUp

        self._check_open()
        return LookUp(texts, kind, lambda wanted: self._looked_up(wanted, topic, kind, should_stop), self._hiding())

    def _looked_up(
        self, texts: list[str], topic: str | None, kind: str | None, should_stop: Callable[[], bool]
    ) -> "Iterator[LookupStep]":
        """The steps of a look-up of texts, each of which is there once."""
        raise self._refusal("look_up")

    def _complete_keys(self) -> None:
        """Do what a look-up by key waits for at first, as scanning what the index lacks."""

    def _check_open(self) -> None:
        """Raise the error of ours that a source is closed, where it asks nobody who would."""

    def _hiding(self) -> "Hiding | None":
        """What hides parts of messages; None where nothing is hidden."""
        return None

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
        """The messages of a queue from a queue offset on, at most `maximum` and 32, as a consumer gets them.

        `tag` (``TagA || TagB``) or `sql` (SQL92) is what the consumer subscribes to. Go on at `next_offset` until it is
        `max_offset`; an answer may be empty before that. Nothing is committed, and no consumer group is made.

        >>> pulled = store.pull("TopicTest", 0, 0, maximum=3)
        >>> [message.queue_offset for message in pulled], pulled.next_offset
        ([0, 1, 2], 3)
        """
        raise self._refusal("pull")

    def follow(
        self, topic: str, offsets: Mapping[int, int], *, tag: str | None = None, sql: str | None = None
    ) -> Iterator[list[Message]]:
        """The messages that come to a topic, piece by piece, as a broker stores them: an iterator without an end.

        `offsets` are the queue offsets to begin at by queue id, 0 for those that are not named. `tag` and `sql` are
        those of :meth:`pull`. A message is there some hundredths of a second after it was stored.

        >>> next(store.follow("TopicTest", {0: 11, 1: 15, 2: 13, 3: 12}))[0].body
        b'hot 38'
        """
        raise self._refusal("follow")

    def search(
        self,
        *,
        topic: str | None = None,
        exhaustive: bool = False,
        should_stop: Callable[[], bool] = never,
        **options: Unpack[SearchOptions],
    ) -> "Search":
        """Search for messages by what they say; all conditions must hold.

        `contains` is a text or bytes, `regex` a regular expression, looked for in the `place` ``body`` (decompressed),
        ``properties`` (their values) or ``any``. `json_path` is ``EXPR=VALUE`` over a body of JSON, `where` SQL92 over
        the properties, `tag` a subscription to tags (``TagA || TagB``), `key` a key or unique key, `key_prefix` the
        start of one. `born_host` is an address, ``address:port``, a network or a host name, of the client or of the
        proxy that it used. `size` are the bytes of the body as in ``1k..64k``. `charset` is that of bodies, by default
        UTF-8; one that is packed by gzip or zstd is looked into unpacked too. `exhaustive` reads the whole log and
        trusts neither index, queues nor clocks. `should_stop` is asked often, from several threads.

        The search is made while its messages are asked for. Over the network it is one of a `topic`, whose queues are
        pulled to their end: all its messages come in the order of the log, but for those stored before `begin`. Raises
        :class:`ConfigError` and :class:`FilterSyntaxError` at once, and :class:`NoSuchTopic` where nothing is found and
        the topic is nowhere.
        """
        raise self._refusal("search")

    def life(self, text: str, *, topic: str | None = None, trace_topics: Iterable[str] = ()) -> "MessageLife":
        """Everything that happened to one message, in order of time.

        Where it waited, was delivered, retried and given up, which groups have passed it, and what traces say, under
        the usual topics and `trace_topics`. `topic` is the one it was sent to; without it every topic is searched. What
        is no unique key is taken as by :meth:`find`: the newest of the messages that it names is meant, and `named`
        has the unique keys of all. Where it names none `reason` says why.

        >>> life = store.life("FD000000000000000000000000000002708C30946E09687211CE0017")
        >>> [event.stage.value for event in life.events]
        ['delivered']
        """
        raise self._refusal("life")

    def pending(self) -> "Pending":
        """The messages that wait for a delay level or a point in time: a context manager, which holds what was found.

        Its `topics` counts them by the topic that they go to, its `messages` lists them, the next one that is due
        first; both can be narrowed to a topic and a time. `as_of` says up to when deliveries are known.

        >>> with store.pending() as pending:
        ...     pending.topics(), pending.as_of.levels_known
        ([], True)
        """
        raise self._refusal("pending")

    def space(
        self,
        *,
        begin: Time | None = None,
        end: Time | None = None,
        broker_config: str | PathLike[str] | None = None,
        report: Callable[[int], None] = unreported,
    ) -> "Space":
        """What takes the disk: messages and bytes by topic, queue, tag, sender and hour, and until when there is room.

        Of all messages, or of those stored between `begin` and `end`, both included: then without the forecast, which
        follows from all. The whole log is read once, without the bodies; `report` gets the bytes that are counted so
        far. `broker_config` is the broker.conf of the store's broker, a file of this machine, which says how long it
        keeps messages; without it a broker's defaults are assumed.

        >>> space = store.space()
        >>> space.messages, [count.names for count in space.topics[:2]]
        (390, [('BulkTopic',), ('TopicTest',)])
        """
        raise self._refusal("space")

    def doctor(self) -> "Diagnosis":
        """Examine the store: what is wrong with it, where, what that means and how to fix it, the worst first.

        Looks for some seconds at files, ends, checkpoints and samples, and reads only.

        >>> diagnosis = store.doctor()
        >>> diagnosis.state, diagnosis.is_clean
        ('stopped', True)
        """
        raise self._refusal("doctor")

    def topics(self) -> Listed[Topic]:
        """All topics by name: of the store's configuration, and of its queues. A name server says names alone.

        >>> [topic.name for topic in store.topics() if topic.name.startswith("Topic")]
        ['TopicBatch', 'TopicDelay', 'TopicEmpty', 'TopicTest', 'TopicTx']
        """
        raise self._refusal("topics")

    def queues(self, topic: str) -> "list[QueueExtent]":
        """The queues of a topic by id, with their offsets and the times of their first and last messages.

        Those in which no message was ever stored are among them. Nothing for a topic that is nowhere. A broker does not
        say when the first message of a queue was stored.

        >>> [(queue.queue_id, queue.min_offset, queue.max_offset) for queue in store.queues("TopicBatch")]
        [(0, 0, 0), (1, 0, 10), (2, 0, 0), (3, 0, 0)]
        """
        raise self._refusal("queues")

    def info(self) -> Info:
        """Which store or broker this is, how far its log reaches, and what is missing or damaged.

        >>> store.info().end_offset
        156014
        """
        raise self._refusal("info")

    def groups(self) -> list[Group]:
        """All consumer groups by name, with the offsets that they have committed.

        And how many messages each has popped and not acknowledged, as far as the broker noted it in the log; of other
        brokers than a RocketLens server that is not known.

        >>> [(group.name, group.offsets) for group in store.groups() if group.name == "CG_FAIL"]
        [('CG_FAIL', {'TopicBatch': {1: 10}})]
        """
        raise self._refusal("groups")

    def refresh(self) -> None:
        """Take in what a running broker has written since the store was opened; what a broker answers is never old."""

    def close(self) -> None:
        """Let go of files and connections; messages that were found stay as they are."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def documented(asked: Asked) -> Asked:
    """Give the methods of a class, which have no docstring, those of the same methods of a source."""
    for name, method in vars(asked).items():
        if not method.__doc__ and callable(method) and name in vars(Source):
            method.__doc__ = getattr(Source, name).__doc__
    return asked
