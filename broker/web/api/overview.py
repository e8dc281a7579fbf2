"""The first view of the page: which store this is, how far its log reaches, and which problems are known."""

from typing import Final

import msgspec

from broker.config import installed_version
from broker.web.api.endpoint import Parameters
from broker.web.api.request_context import RequestContext
from protocol.errors import StoreError
from storage.layout.store_layout import recognise_with_tier
from storage.store.extents import log_extent

MOST_PROBLEMS: Final = 50
MOST_REFUSED: Final = 20


class StoreQuestion(Parameters):
    """A question without parameters of its own."""


class LogOverview(msgspec.Struct, rename="camel", kw_only=True):
    """Physical offsets of the log, and the store times of its first and last messages in ms, None if unknown."""

    minimum: int
    end: int
    segments: int
    first_timestamp: int | None
    last_timestamp: int | None


class RefusedLine(msgspec.Struct, rename="camel", kw_only=True):
    """Requests that were refused: what the account lacks, and the line of plain_acl.yml that would give it.

    `account` is empty where the client named none that there is, `add` where no line helps.
    """

    account: str
    lacks: str
    add: str
    count: int
    last_timestamp: int


class StoreAnswer(msgspec.Struct, rename="camel", kw_only=True):
    """The store. `state` is live, crashed or stopped; only administrators see what concerns all topics together.

    `incomplete` says what any search may miss, `problems` what is missing, damaged or being searched for, `gone` why
    the store is not there any more. `access_key` is whose keys were taken, `needs_keys` whether keys are required;
    `brokers` are those that can be selected here. `refused` are the accounts that lacked something, the newest refusal
    first.
    """

    broker_name: str
    cluster: str
    version: str
    needs_keys: bool
    access_key: str | None
    is_admin: bool
    brokers: list[str]
    topics: int
    gone: str | None = None
    state: str | None = None
    store: str | None = None
    log: LogOverview | None = None
    index_files: int | None = None
    incomplete: str | None = None
    problems: list[str] = []
    problems_left_out: int = 0
    refused: list[RefusedLine] = []


def store(context: RequestContext, _question: StoreQuestion) -> StoreAnswer:
    """Which store this is, and how far it reaches."""
    service = context.service
    answer = StoreAnswer(
        broker_name=service.broker_name,
        cluster=service.cluster,
        version=installed_version(),
        needs_keys=context.needs_keys,
        access_key=None if context.account is None else context.account.access_key,
        is_admin=context.is_admin,
        brokers=list(context.brokers),
        topics=len(context.topics()),
        gone=_reason_not_to_follow(context),
    )
    if context.is_admin:
        _add_whole_store(context, answer)
    return answer


def _add_whole_store(context: RequestContext, answer: StoreAnswer) -> None:
    snapshot = context.store.snapshot
    log, state = log_extent(snapshot), snapshot.state
    problems = [*filter(None, [answer.gone]), *context.store.queue_searches()[0], *context.store.problems]
    answer.state = state.word
    answer.store = str(snapshot.layout.root)
    answer.log = LogOverview(
        minimum=log.minimum,
        end=log.end,
        segments=log.segments,
        first_timestamp=log.first_timestamp,
        last_timestamp=log.last_timestamp,
    )
    answer.index_files = len(snapshot.index.files)
    answer.incomplete = snapshot.incomplete
    answer.problems = problems[:MOST_PROBLEMS]
    answer.problems_left_out = max(len(problems) - MOST_PROBLEMS, 0)
    answer.refused = [
        RefusedLine(**denial.want._asdict(), count=denial.count, last_timestamp=denial.last_timestamp)
        for denial in context.service.denials.all()[:MOST_REFUSED]
    ]


def _reason_not_to_follow(context: RequestContext) -> str | None:
    """Say why the directory is no store any more: its disk was removed, or files were deleted. Answers are old then.

    Only administrators learn where it was.
    """
    try:
        options = context.service.options
        recognise_with_tier(context.store.layout.root, options.commit_log_directories, options.tier)
    except StoreError as error:
        text = "the store cannot be followed, answers are of what was read before"
        return f"{text}: {error}" if context.is_admin else text
    return None
