"""What the page shows first: which store this is, how far its log reaches, and what is the matter at first sight."""

from typing import Final

import msgspec

from broker.web.api.endpoint import Question
from broker.web.api.request_context import RequestContext
from broker.web.metrics_collector import installed_version
from protocol.errors import StoreError
from storage.layout.store_layout import recognise_store

MOST_PROBLEMS: Final = 50


class StoreQuestion(Question):
    """Nothing is asked for but the store."""


class LogExtent(msgspec.Struct, rename="camel", kw_only=True):
    """Physical offsets of the log, and when its first and last messages were stored (ms), as far as that is known."""

    minimum: int
    end: int
    segments: int
    first_timestamp: int | None
    last_timestamp: int | None


class StoreAnswer(msgspec.Struct, rename="camel", kw_only=True):
    """The store. `state` is live, crashed or stopped; what is of all topics together, administrators alone are told.

    `incomplete` says what any search may miss, `problems` what is missing or damaged. `access_key` is whose keys were
    taken, `needs_keys` whether there have to be any; `brokers` are those that may be asked here.
    """

    broker_name: str
    cluster: str
    version: str
    needs_keys: bool
    access_key: str | None
    is_admin: bool
    brokers: list[str]
    topics: int
    state: str | None = None
    store: str | None = None
    log: LogExtent | None = None
    index_files: int | None = None
    incomplete: str | None = None
    problems: list[str] = []
    problems_left_out: int = 0


def store(asked: RequestContext, _question: StoreQuestion) -> StoreAnswer:
    """Which store this is, and how far it reaches."""
    service = asked.service
    answer = StoreAnswer(
        broker_name=service.broker_name,
        cluster=service.cluster,
        version=installed_version(),
        needs_keys=asked.needs_keys,
        access_key=None if asked.account is None else asked.account.access_key,
        is_admin=asked.is_admin,
        brokers=list(asked.brokers),
        topics=len(asked.topics()),
    )
    if asked.is_admin:
        _tell_all(asked, answer)
    return answer


def _tell_all(asked: RequestContext, answer: StoreAnswer) -> None:
    snapshot = asked.store.snapshot
    log, state = snapshot.commit_log, snapshot.state
    first = log.store_timestamp_at(log.minimum, 1)
    newest = max((run.last for run in snapshot.tail.runs), default=-1)
    last = max(log.store_timestamp_at(newest, 1) if newest >= 0 else 0, snapshot.index.last_update[0])
    problems = [*_reason_not_to_follow(asked), *asked.store.problems]
    answer.state = "live" if state.is_live else "crashed" if state.has_crashed else "stopped"
    answer.store = str(snapshot.layout.root)
    answer.log = LogExtent(
        minimum=log.minimum,
        end=log.end,
        segments=len(log.segments),
        first_timestamp=first if first > 0 else None,
        last_timestamp=last if last > 0 else None,
    )
    answer.index_files = len(snapshot.index.files)
    answer.incomplete = snapshot.incomplete
    answer.problems = problems[:MOST_PROBLEMS]
    answer.problems_left_out = max(len(problems) - MOST_PROBLEMS, 0)


def _reason_not_to_follow(asked: RequestContext) -> list[str]:
    """Why what is there now is no store any more: a disk was taken away, files were deleted, and answers are old."""
    try:
        recognise_store(asked.store.layout.root, asked.service.options.commit_log_directories, open_segments=False)
    except StoreError as error:
        return [f"the store cannot be followed, answers are of what was read before: {error}"]
    return []
