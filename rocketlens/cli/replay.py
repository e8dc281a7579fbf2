"""`rocketlens replay`: send messages of any source to a running cluster again, with an account of each.

Late imports: asyncio, SQLite and the client come along with them, and help and most usage errors do without.
"""

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from rocketlens.cli.condition_options import SearchConditions, condition_options
from rocketlens.cli.errors import FOUND, NOT_FOUND, STOPPED, STORE_ERROR, plain_errors, say
from rocketlens.cli.find_many import lines_of
from rocketlens.cli.grouped_command import GroupedCommand
from rocketlens.cli.opening import SourceArguments, source_options
from rocketlens.cli.options import charset_option, gathered, limit_option
from rocketlens.cli.output import format_options, print_fields, print_table, time_text, write_maps
from rocketlens.cli.search import stopping
from rocketlens.cli.search_progress import SearchProgress
from rocketlens.cli.server_options import FILE
from rocketlens.cli.time_options import check_stored, timezone_option, typed_time
from rocketlens.replay import ORDERS
from storage.amounts import counted

if TYPE_CHECKING:
    from rocketlens.replay.account import TopicSum
    from rocketlens.replay.choice import ReplayChoice
    from rocketlens.replay.plan import ReplayPlan
    from rocketlens.replay.replay import ReplayReport, ReplayRequest, ReplayWatcher
    from rocketlens.replay.target import TargetTopic

COUNT: Final = click.IntRange(1, 1024)
MOST_NAMED: Final = 20
"""Texts and messages that are named of those that are not sent."""


class ChoiceArguments(msgspec.Struct, frozen=True):
    """What the options say of which messages are sent, besides the conditions."""

    topics: tuple[str, ...]
    dead_letters_of: tuple[str, ...]
    file: str | None
    maximum: int | None
    copies: bool

    def all_topics(self) -> tuple[str, ...]:
        """The topics that are named, those of dead letters among them."""
        from protocol.system_topics import DEAD_LETTER_PREFIX

        return (*self.topics, *(f"{DEAD_LETTER_PREFIX}{group}" for group in self.dead_letters_of))


class MannerArguments(msgspec.Struct, frozen=True):
    """What the options say of where messages go, how fast, and what is done."""

    to: str
    to_topic: str | None
    to_origin: bool
    to_retry: bool
    new_ids: bool | None
    order: str
    rate: float | None
    in_flight: int
    batch: int
    most_failures: int
    account: Path | None
    forgets: bool
    go: bool
    verify: bool
    to_credentials: Path | None


@click.command(cls=GroupedCommand)
@source_options("SOURCE|FILE.jsonl [TEXT]...")
@click.option("--to", required=True, metavar="NAMESRV", help="Its name servers: HOST:PORT;HOST:PORT.")
@click.option("--go", is_flag=True, help="Send. Without it only the plan is printed.")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Messages of this topic; repeatable.")
@click.option("--dlq", "dead_letters_of", multiple=True, metavar="GROUP", help="The dead letters of this group.")
@click.option("-f", "file", metavar="FILE", help="A TEXT on each line.")
@condition_options()
@limit_option("Send at most N messages.")
@click.option("--copies", is_flag=True, help="Also what waits for a time or a transaction.")
@click.option("--to-topic", metavar="TOPIC", help="Send all to this topic.")
@click.option("--to-origin", is_flag=True, help="What a group failed to consume: to its topic.")
@click.option("--to-retry", is_flag=True, help="What a group failed to consume: to this group alone.")
@click.option("--new-ids/--keep-ids", default=None, help="Unique keys. [default: new in their own cluster]")
@click.option(
    "--order", type=click.Choice(ORDERS), default="queue", metavar="queue|key|none", help="What keeps its order."
)
@click.option("--rate", type=click.FloatRange(0, min_open=True), metavar="N", help="Messages a second.")
@click.option("--in-flight", type=COUNT, default=16, metavar="N", show_default=True, help="Requests at once.")
@click.option("--batch", type=COUNT, default=32, metavar="N", show_default=True, help="Messages a request.")
@click.option(
    "--stop-after", "most_failures", type=COUNT, default=10, metavar="N", show_default=True, help="Failures in a row."
)
@click.option("--verify", is_flag=True, help="Then ask the target for each message.")
@click.option(
    "--account",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="SQLite file. [default: rocketlens-replay-....sqlite]",
)
@click.option("--fresh", "forgets", is_flag=True, help="Forget what the account has.")
@click.option("--to-credentials", type=FILE, metavar="YAML", help="As --credentials, of the target alone.")
@charset_option
@format_options
@timezone_option
@gathered(choosing=ChoiceArguments, conditions=SearchConditions, manner=MannerArguments)
@plain_errors
def replay(
    source: SourceArguments,
    choosing: ChoiceArguments,
    conditions: SearchConditions,
    manner: MannerArguments,
    output_format: str,
) -> None:
    """Send messages of SOURCE, or of the JSON lines of an export, to a running cluster again.

    Those that TEXTs name (ids or keys), else those of --topic and --dlq that meet all conditions. First a plan says
    what goes to which topic, what does not go, and why; with --go it is sent, as by an ordinary producer
    (docs/replay.md says what stays of a message). An account says of each what became of it, and the same command goes
    on from there. That nothing is ever double cannot be promised: --verify names what is.

    Exit code 0: all was sent (or would be); 1: not all, or nothing was chosen; 3: SOURCE or the target cannot be read;
    130: stopped with Ctrl-C.
    """
    from rocketlens.replay.account import WRONG, ReplayAccount
    from rocketlens.replay.replay import replay as run

    check_stored(conditions.begin, conditions.end)
    with contextlib.ExitStack() as closing:
        request = _request(source, choosing, conditions, manner, closing)
        path = _account_path(manner, request.choosing)
        should_stop = closing.enter_context(stopping())
        account = closing.enter_context(ReplayAccount(path))
        if manner.forgets:
            account.forget()
        progress = closing.enter_context(SearchProgress())
        report = run(request, account, _watching(progress, request, output_format, should_stop))
        wrong = account.named(*WRONG, most=MOST_NAMED)
    _say_report(report, request, path, output_format)
    for key, copies, outcome in wrong if manner.verify else ():
        say(f"{outcome.name.lower()}: {key}{' at ' if copies else ''}{copies}")
    sys.exit(_exit_code(report))


def _request(
    source: SourceArguments,
    choosing: ChoiceArguments,
    conditions: SearchConditions,
    manner: MannerArguments,
    closing: contextlib.ExitStack,
) -> "ReplayRequest":
    """What the options ask for, of a source that `closing` closes; raises usage errors and ConfigError."""
    from broker.cluster.client import Credentials
    from rocketlens.replay.replay import ReplayRequest, name_servers_of
    from rocketlens.replay.resent import ResendManner, RetriedGoal
    from rocketlens.replay.sending import SendSpeed

    goals = [
        goal
        for goal, is_given in (
            (RetriedGoal.TOPIC, manner.to_topic is not None),
            (RetriedGoal.ORIGIN, manner.to_origin),
            (RetriedGoal.RETRY, manner.to_retry),
        )
        if is_given
    ]
    if len(goals) > 1:
        raise click.UsageError(f"{' and '.join(goal.value for goal in goals)} exclude each other")
    if manner.verify and not manner.go:
        raise click.UsageError("--verify needs --go: it asks for what was sent")
    source.server_arguments.check()
    given = source.server_arguments
    target = (
        given if manner.to_credentials is None else msgspec.structs.replace(given, credentials=manner.to_credentials)
    )
    access_key, secret_key = target.keys()
    choice, cluster, hosts = _choice(source, choosing, conditions, closing)
    return ReplayRequest(
        choice,
        name_servers_of(manner.to),
        ResendManner(goals[0] if goals else None, manner.to_topic or "", cluster=cluster, copies=choosing.copies),
        _choosing(source, choosing, conditions, manner),
        manner.order,
        SendSpeed(manner.rate, manner.in_flight, manner.batch, manner.most_failures),
        manner.go,
        manner.verify,
        manner.new_ids,
        hosts,
        target.context() or None,
        None if access_key is None or secret_key is None else Credentials(access_key, secret_key),
    )


def _choice(
    source: SourceArguments, choosing: ChoiceArguments, conditions: SearchConditions, closing: contextlib.ExitStack
) -> "tuple[ReplayChoice, str, Any]":
    """Return the choice, the name of its cluster, and a function for the addresses of its brokers."""
    from rocketlens.replay.choice import LinesChoice, SourceChoice

    topics = choosing.all_topics()
    file = source.place
    if file is not None and os.path.isfile(file):
        if source.rest or choosing.file or choosing.copies or conditions != NO_CONDITIONS or choosing.maximum:
            raise click.UsageError(f"{file} is a file of messages: it is chosen by --topic alone")
        return LinesChoice(Path(file), topics), "", set
    if source.rest and choosing.file:
        raise click.UsageError("-f FILE takes the place of TEXT")
    texts = lines_of(choosing.file) if choosing.file else list(source.rest)
    if texts and conditions != NO_CONDITIONS:
        raise click.UsageError("TEXTs name messages: the conditions of a search are for a --topic")
    if not texts and not topics and conditions == NO_CONDITIONS:
        raise click.UsageError("say what is sent: a TEXT, -f FILE, --topic, --dlq, or a condition")
    opened = closing.enter_context(source.open(connects_too=True))
    info = opened.info()
    choice = SourceChoice(
        opened,
        topics,
        list(dict.fromkeys(texts)),
        conditions.options(choosing.maximum),
        choosing.copies,
        bool(source.store_arguments.rules),
    )
    return choice, info.cluster or "", lambda: {info.where}


NO_CONDITIONS: Final = SearchConditions()


def _choosing(
    source: SourceArguments, choosing: ChoiceArguments, conditions: SearchConditions, manner: MannerArguments
) -> str:
    """What tells this choice, and where it goes, from others: as it was typed."""
    times = {name: typed_time(name, value) for name in ("begin", "end") if (value := getattr(conditions, name))}
    said = {
        "source": [*map(str, source.stores), *source.words],
        "choice": {name: value for name, value in msgspec.to_builtins(choosing).items() if value},
        "conditions": {name: value for name, value in msgspec.to_builtins(conditions).items() if value} | times,
        "to": [manner.to, manner.to_topic, manner.to_origin, manner.to_retry, manner.order],
    }
    return json.dumps(said, sort_keys=True)


def _account_path(manner: MannerArguments, choosing: str) -> Path | None:
    """The file of the account; None where nothing is sent, and the plan is not kept."""
    name = f"rocketlens-replay-{hashlib.blake2b(choosing.encode(), digest_size=6).hexdigest()}.sqlite"
    path = manner.account or Path(name)
    return path if manner.go else None


def _watching(
    progress: SearchProgress, request: "ReplayRequest", output_format: str, should_stop: Callable[[], bool]
) -> "ReplayWatcher":
    from rocketlens.replay.replay import ReplayWatcher

    def planned(plan: "ReplayPlan") -> None:
        with progress.aside():
            _show_plan(plan, request, output_format)

    return ReplayWatcher(
        lambda count: progress.show(_Sentence(f"replay: {counted(count, 'message')} chosen")),
        planned,
        progress.show,
        lambda count: progress.show(_Sentence(f"replay: asked for {counted(count, 'message')}")),
        should_stop,
    )


class _Sentence(str):
    """A sentence that says how far something is."""

    def sentence(self) -> str:
        return str(self)


def _show_plan(plan: "ReplayPlan", request: "ReplayRequest", output_format: str) -> None:
    """Print what will go where, and say what will not, and why."""
    for note in plan.notes:
        say(note)
    rows = [_topic_fields(planned, topic, request) for planned, topic in plan.topics]
    if output_format == "table":
        print_table(
            ("TOPIC", "MESSAGES", "BYTES", "FIRST STORED", "LAST STORED", "IN BATCHES", "QUEUES", "TYPE", "GROUPS"),
            (
                (
                    row["topic"],
                    row["messages"],
                    row["bytes"],
                    time_text(row["firstStored"]),
                    time_text(row["lastStored"]),
                    row["inBatches"],
                    row["queues"],
                    row["type"] or "-",
                    ", ".join(row["groups"]) or "-",
                )
                for row in rows
            ),
        )
    elif not request.go:
        write_maps(output_format, rows)
    for reason, count, place in plan.refused:
        say(f"not sent: {counted(count, 'message')}: {reason} (the first: {place})")
    for text in plan.missing[:MOST_NAMED]:
        say(f"no message: {text}")
    if len(plan.missing) > MOST_NAMED:
        say(f"no message: {len(plan.missing) - MOST_NAMED:,} more")
    if not request.go:
        rate = request.speed.rate
        duration = f" in {plan.messages / rate:,.0f} s" if rate else ""
        say(f"{counted(plan.messages, 'message')} would be sent{duration}; nothing is sent without --go")


def _topic_fields(planned: "TopicSum", topic: "TargetTopic", request: "ReplayRequest") -> dict[str, Any]:
    batched = planned.batched if request.speed.batch > 1 else 0
    return {
        "topic": planned.topic,
        "messages": planned.messages,
        "bytes": planned.size,
        "firstStored": planned.first,
        "lastStored": planned.last,
        "inBatches": batched,
        "single": planned.messages - batched,
        "queues": len(topic.queues),
        "sizeLimit": topic.size_limit,
        "type": topic.kind,
        "groups": list(topic.groups),
    }


def _say_report(report: "ReplayReport", request: "ReplayRequest", path: Path | None, output_format: str) -> None:
    """Say what became of the messages, and how groups are set back to read them again."""
    from rocketlens.replay.account import SendState
    from rocketlens.replay.replay import ReplayEnding

    if report.ending is ReplayEnding.PLANNED:
        return
    fields = {state.name.lower(): count for state, count in report.states.items() if state is not SendState.SENDING}
    if report.outcomes and any(report.outcomes.values()):
        fields |= {outcome.name.lower(): count for outcome, count in report.outcomes.items()}
    if output_format == "table":
        print_fields((name, f"{count:,}") for name, count in fields.items())
    else:
        write_maps(output_format, [fields | {"account": str(path)}])
    if report.reason:
        say(f"stopped: {report.reason}; the same command goes on")
    elif report.ending is ReplayEnding.STOPPED:
        say("stopped; the same command goes on")
    if report.states[SendState.UNKNOWN]:
        say(f"{counted(report.states[SendState.UNKNOWN], 'message')} may have been sent: the same command asks again")
    if report.ending is ReplayEnding.DONE and not request.verify:
        say(f"the account is {path}; --verify asks the target for each message")
    for planned, topic in report.plan.topics if report.plan is not None else ():
        for group in topic.groups:
            say(
                f"{group} gets them in their turn; to have it go back to them: mqadmin resetOffsetByTime "
                f"-n '{request.to}' -g {group} -t {planned.topic} -s {report.started}"
            )


def _exit_code(report: "ReplayReport") -> int:
    from rocketlens.replay.account import SendState
    from rocketlens.replay.replay import ReplayEnding

    if report.ending is ReplayEnding.STOPPED:
        return STOPPED
    if report.ending is ReplayEnding.GAVE_UP:
        return STORE_ERROR
    if report.ending is ReplayEnding.PLANNED:
        has_all = report.states[SendState.PLANNED] and not report.states[SendState.REFUSED]
        return FOUND if has_all and report.plan is not None and not report.plan.missing else NOT_FOUND
    return FOUND if report.is_whole and report.states[SendState.SENT] else NOT_FOUND
