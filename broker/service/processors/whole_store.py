"""What only RocketLens is asked for: a message's life, what waits, what takes the disk, what is wrong with the store.

Also what is not read of it, how far it reaches, which topics are known where their configuration is not, what
groups have popped, and which copies there are of a message that is gone.

It goes over the remoting port, since that is the one that clients know: the page may be elsewhere or not there at all.
What reads all of a store is done once for all who ask (:mod:`broker.service.kept_work`); until it is there an answer
says that it is under way. Where accounts are, only administrators may ask, but for what is not read of one topic, and
for the topics that an account may read.

Late imports: what only one question needs is loaded when it is first asked, for most servers are asked none.
"""

import os
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from broker.service.broker_service import BrokerService
from broker.service.dispatcher import handles
from broker.service.kept_work import KEPT_SECONDS, KeptWorks, Report, WorkState
from protocol.codes import OwnRequestCode, ResponseCode
from protocol.command import Response
from protocol.errors import ConfigError, RocketLensError
from protocol.header_fields import I64
from protocol.headers import RequestHeader
from protocol.question import LARGEST
from storage.files.waiting import Lookup, Wait

if TYPE_CHECKING:
    from storage.life.pending import Pending
    from storage.log.commit_log import CommitLog
    from storage.space.tally import Tally

ROWS_AT_ONCE: Final = 50_000

MOST_COPIES: Final = 1000
"""Copies of one message that are sent."""

LISTED_SECONDS: Final = 600.0
"""How long a list of what waits may take."""


class AskStoreRequestHeader(RequestHeader, frozen=True):
    """ASK_STORE: `question` is one of :class:`WholeStoreProcessor`; the others narrow it, or are where a list goes on.

    `trace_topics` are separated by commas. `file_reserved_time` and `disk_max_used_space_ratio` are a broker's settings
    for a forecast of space; -1 for those that nobody said. Space is that of messages stored between the two times.
    """

    question: str
    unique_key: str = ""
    topic: str = ""
    trace_topics: str = ""
    behind: I64 = 0
    file_reserved_time: I64 = -1
    disk_max_used_space_ratio: I64 = -1
    begin_timestamp: I64 = -LARGEST - 1
    end_timestamp: I64 = LARGEST


class WholeStoreProcessor:
    """Answers questions about all of a store. What they need is loaded when the first one comes."""

    def __init__(self, service: BrokerService) -> None:
        self._service = service
        self._works: KeptWorks[Any] = KeptWorks("whole-store", "reading the store")
        self._listing = threading.Lock()
        self._questions: dict[str, Callable[[AskStoreRequestHeader], Response]] = {
            "life": self._life,
            "pending": self._pending,
            "space": self._space,
            "doctor": self._doctor,
            "notes": self._notes,
            "copies": self._copies,
            "extent": self._extent,
            "topics": self._topics,
            "popped": self._popped,
        }

    @handles(OwnRequestCode.ASK_STORE, AskStoreRequestHeader)
    def ask(self, header: AskStoreRequestHeader) -> Lookup[Response]:
        """Answer a question, or that the work for it is under way; INVALID_PARAMETER for what cannot be asked."""
        yield Wait("a question about the whole store")
        answer = self._questions.get(header.question)
        if answer is None:
            return Response(ResponseCode.INVALID_PARAMETER, f"expected one of {', '.join(self._questions)}")
        try:
            return answer(header)
        except ConfigError as error:
            return Response(ResponseCode.INVALID_PARAMETER, str(error))

    def _life(self, header: AskStoreRequestHeader) -> Response:
        from broker.service.served_life import served_life
        from broker.service.store_answers import encode_life

        self._service.store.refuse_tier("life")
        traces = filter(None, header.trace_topics.split(","))
        found = served_life(self._service, header.unique_key, header.topic or None, traces)
        return Response(body=encode_life(self._service.store, found))

    def _pending(self, header: AskStoreRequestHeader) -> Response:
        from broker.service.store_answers import SentPending, encode_answer

        store = self._service.store
        if store.layout.is_tier_alone:
            store.refuse_tier("pending")
        # A list that goes on goes on in what it began with.
        found = self._done(
            "pending", partial(_waiting, self._service), LISTED_SECONDS if header.behind else KEPT_SECONDS
        )
        if isinstance(found, Response):
            return found
        with self._listing:
            rows = found.rows(header.behind, ROWS_AT_ONCE)
        return Response(body=encode_answer(SentPending(found.as_of, found.incomplete, rows)))

    def _space(self, header: AskStoreRequestHeader) -> Response:
        from broker.service.store_answers import encode_answer
        from storage.columns.wanted import ALL_TIMES
        from storage.space.broker_settings import MOST_USED, RESERVED, settings_of
        from storage.space.whole import space_of

        said = {RESERVED: header.file_reserved_time, MOST_USED: header.disk_max_used_space_ratio}
        settings = settings_of({name: value for name, value in said.items() if value >= 0})
        self._service.store.refuse_tier("space")
        # Counted once for all who ask; the forecast is made with the settings of each.
        lacks, times = self._service.store.config.notes_of_topics(), (header.begin_timestamp, header.end_timestamp)
        found = self._done(f"space {times}", partial(_counted, self._service, times), KEPT_SECONDS)
        if isinstance(found, Response):
            return found
        log, tally = found
        return Response(body=encode_answer(space_of(log, tally, settings, lacks, is_narrowed=times != ALL_TIMES)))

    def _doctor(self, _header: AskStoreRequestHeader) -> Response:
        from broker.service.store_answers import encode_answer

        found = self._done("doctor", partial(_diagnosis, self._service), KEPT_SECONDS)
        return found if isinstance(found, Response) else Response(body=encode_answer(found))

    def _notes(self, header: AskStoreRequestHeader) -> Response:
        """Name the parts of the store that are not read, for one topic, or for all topics and groups."""
        from broker.service.store_answers import SentNotes, encode_answer

        store, config = self._service.store, self._service.store.config
        if header.topic:
            return Response(body=encode_answer(SentNotes(config.notes_of_topics([header.topic]), [], store.why_lost)))
        return Response(body=encode_answer(SentNotes(config.notes_of_topics(), config.notes_of_groups, store.why_lost)))

    def _copies(self, header: AskStoreRequestHeader) -> Response:
        """The records that name an offset message id, which is `unique_key`, as that of their origin."""
        from broker.service.store_answers import encode_answer
        from storage.search.origin_copies import copies_of

        store = self._service.store
        found = islice(copies_of(store, header.unique_key), MOST_COPIES)
        records = [record for each in found if (record := store.record_at(each.physical_offset)) is not None]
        return Response(body=encode_answer(list(map(bytes, records))))

    def _extent(self, _header: AskStoreRequestHeader) -> Response:
        """How far the store reaches, and what is missing or damaged."""
        from broker.service.store_answers import encode_answer
        from storage.store.extents import store_extent

        return Response(body=encode_answer(store_extent(self._service.store)))

    def _popped(self, _header: AskStoreRequestHeader) -> Response:
        """What groups have popped and not acknowledged, as far as the broker noted it in the log."""
        from broker.service.store_answers import SentPopped, encode_answer

        found = _outcome(self._service.popped.ask())
        if isinstance(found, Response):
            return found
        counts, counted_at = found
        return Response(body=encode_answer(SentPopped(counts, int(time.monotonic() - counted_at))))

    def _topics(self, _header: AskStoreRequestHeader) -> Response:
        """The topics that are known, those of queues where the configuration cannot be read."""
        from broker.service.store_answers import SentTopics, encode_answer
        from storage.store.topic_catalog import known_topics

        topics, more = known_topics(self._service.store)
        return Response(body=encode_answer(SentTopics(topics, more)))

    def _done(self, question: str, work: Callable[[Report], Any], maximum_age: float) -> Any:
        """What came of a work, or the response that it is under way; raises RocketLensError where it failed."""
        return _outcome(self._works.ask(question, work, maximum_age))


def _outcome(state: WorkState[Any]) -> Any:
    """What came of a work, or the response that it is under way; raises RocketLensError where it failed."""
    from broker.service.store_answers import UNDER_WAY

    if state.problem is not None:
        raise RocketLensError(state.problem)
    if state.is_running or state.outcome is None:
        return Response(ext_fields={UNDER_WAY: str(state.progress)})
    return state.outcome


def _waiting(service: BrokerService, report: Report) -> "Pending":
    from storage.life.pending import Pending

    return Pending(service.store, report)


def _counted(service: BrokerService, times: tuple[int, int], report: Report) -> "tuple[CommitLog, Tally]":
    """The log of this moment, and all that was counted of it of messages that were stored between two times."""
    from storage.space.measure import in_threads, measure

    log = service.store.commit_log
    # Half of the cores stay with other clients.
    tally_all = partial(in_threads, threads=max((os.cpu_count() or 2) // 2, 1), check=lambda: report(0))
    return log, measure(log, tally_all, report, times)


def _diagnosis(service: BrokerService, report: Report) -> object:
    from storage.doctor.examine import examine

    options = service.options
    vouched = None
    if options.index_slots is not None and options.index_entries is not None:
        vouched = options.index_slots, options.index_entries
    return examine(service.store.layout.root, options.commit_log_directories, vouched, report)
