"""One run: plan, send, verify, each where it was asked for and not done before; and what there is to say at the end."""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from broker.cluster.client import Client, Credentials
from broker.endpoint import Endpoint
from protocol.errors import ConfigError
from protocol.host_address import HostAddress
from rocketlens.replay.account import ReplayAccount, SendState, Verification, now_text
from rocketlens.replay.choice import RememberedChoice, ReplayChoice
from rocketlens.replay.plan import ReplayPlan, make_plan, plan_closed, plan_of
from rocketlens.replay.resent import ResendManner, RetriedGoal
from rocketlens.replay.sending import ReplaySending, ReplayStopped, SendSpeed, SendTally
from rocketlens.replay.target import ReplayTarget
from rocketlens.replay.verifying import ReplayVerifying
from storage.amounts import counted

_PLANNED = "planned"
_NOTES = "notes"
_TIMES = "times"
_NEW_IDS = "new_ids"
"""What is noted of keys: "yes" where all messages get new ones, else the addresses of brokers whose messages do."""
_RETRY_TOPICS = "retry_topics"
_STARTED = "started"


@dataclass(frozen=True)
class ReplayRequest:
    """The order of a replay: `choice` is sent to brokers of `name_servers`, as `manner`, `order` and `speed` say.

    Without `go` nothing is sent. `new_ids` None: where the target is the source's own cluster. `choosing` tells this
    choice from others: an account belongs to one.
    """

    choice: ReplayChoice
    name_servers: tuple[Endpoint, ...]
    manner: ResendManner
    choosing: str
    order: str = "queue"
    speed: SendSpeed = field(default_factory=SendSpeed)
    go: bool = False
    verify: bool = False
    new_ids: bool | None = None
    source_hosts: Callable[[], set[str]] = set
    tls: Any = None
    credentials: Credentials | None = None

    @property
    def to(self) -> str:
        """The name servers, as mqadmin's -n takes them."""
        return ";".join(map(str, self.name_servers))


class ReplayEnding(Enum):
    """How a run ended."""

    PLANNED = "planned"
    DONE = "done"
    STOPPED = "stopped"
    GAVE_UP = "gave up"


@dataclass(frozen=True)
class ReplayReport:
    """The end of a run: the plan, how many messages are in each state, and what the target said of them."""

    ending: ReplayEnding
    plan: ReplayPlan | None
    states: dict[SendState, int]
    outcomes: dict[Verification, int]
    reason: str = ""
    started: int = 0
    """When the first message was sent, in ms."""

    @property
    def is_whole(self) -> bool:
        """Whether all that was chosen was sent, and nothing that was asked for is missing or doubtful."""
        bad = sum(
            self.states[each] for each in (SendState.PLANNED, SendState.SENDING, SendState.REFUSED, SendState.UNKNOWN)
        )
        wrong = sum(count for outcome, count in self.outcomes.items() if outcome is not Verification.VERIFIED)
        missing = self.plan is not None and bool(self.plan.missing)
        return self.ending is ReplayEnding.DONE and not bad and not wrong and not missing


@dataclass
class ReplayWatcher:
    """Listener that is notified of the progress of a run, and decides whether it goes on."""

    planning: Callable[[int], None] = lambda _count: None
    planned: Callable[[ReplayPlan], None] = lambda _plan: None
    sending: Callable[[SendTally], None] = lambda _tally: None
    verifying: Callable[[int], None] = lambda _count: None
    should_stop: Callable[[], bool] = lambda: False


def replay(request: ReplayRequest, account: ReplayAccount, watching: ReplayWatcher) -> ReplayReport:
    """Run what is asked for; raises ConfigError, `ClientError`, and what reading the source raises."""
    said = account.said("choosing")
    if said is None:
        account.say(choosing=request.choosing)
    elif said != request.choosing:
        raise ConfigError(f"the account {account.path} is one of another replay: {said}")
    elif account.has_sent_nothing:  # the target may be another by now, and so may the source
        account.forget()
        account.say(choosing=request.choosing)
    order = account.said("order")
    if order is not None and (order == "key") != (request.order == "key"):
        raise ConfigError(f"the account {account.path} was planned with --order {order}: --fresh plans anew")
    times = account.said(_TIMES)
    if times is None:
        account.say(**{_TIMES: json.dumps(request.choice.times())})
    else:
        request.choice.set_times(json.loads(times))
    try:
        import uvloop  # only other Pythons than CPython are without it
    except ImportError:
        return asyncio.run(_run(request, account, watching))
    return uvloop.run(_run(request, account, watching))


async def _run(request: ReplayRequest, account: ReplayAccount, watching: ReplayWatcher) -> ReplayReport:
    async with Client(tls=request.tls, credentials=request.credentials) as client:
        target = ReplayTarget(client, request.name_servers)
        manner = await _manner(request, target, account)
        choice = RememberedChoice(request.choice)
        planned = account.said(_PLANNED)
        if planned is None:
            notes = await make_plan(
                choice, manner, target, account, request.order, watching.planning, watching.should_stop
            )
            if notes is None:
                return _report(ReplayEnding.STOPPED, None, account)
            account.say(**{_PLANNED: now_text(), _NOTES: "\n".join(notes)})
        notes = (account.said(_NOTES) or "").splitlines()
        if planned is not None:
            notes += await plan_closed(account, target, watching.should_stop)
            notes.append(f"this goes on with the plan of {planned}; what came since is not in it (--fresh plans anew)")
        plan = await plan_of(account, target, notes)
        watching.planned(plan)
        if not request.go:
            return _report(ReplayEnding.PLANNED, plan, account)
        if account.said(_STARTED) is None:
            account.say(**{_STARTED: str(int(time.time() * 1000))})
        reason, ending = "", ReplayEnding.DONE
        try:
            await ReplaySending(
                choice,
                manner,
                target,
                account,
                request.speed,
                request.order,
                watching.sending,
                watching.should_stop,
            ).run()
        except ReplayStopped as stopped:
            reason, ending = str(stopped), ReplayEnding.GAVE_UP if str(stopped) else ReplayEnding.STOPPED
        if request.verify and ending is ReplayEnding.DONE:
            failures = request.speed.most_failures
            reason = await ReplayVerifying(account, target, failures, watching.verifying, watching.should_stop).run()
            if reason:
                ending = ReplayEnding.GAVE_UP
                left = account.states()[SendState.SENT] - sum(account.outcomes().values())
                reason = f"{counted(left, 'message')} could not be asked for: {reason}"
            if watching.should_stop():
                ending = ReplayEnding.STOPPED
        return _report(ending, plan, account, reason)


async def _manner(request: ReplayRequest, target: ReplayTarget, account: ReplayAccount) -> ResendManner:
    """How messages are sent; of a run that goes on as it began."""
    known = account.said(_NEW_IDS)
    if known is None:
        if request.new_ids is not None:
            known = "yes" if request.new_ids else ""
        else:
            there = await target.addresses()
            known = "yes" if there & request.source_hosts() else " ".join(sorted(there))
        account.say(**{_NEW_IDS: known})
    retries = account.said(_RETRY_TOPICS)
    if retries is None:
        retries = "\n".join(await target.retry_topics()) if request.manner.goal is RetriedGoal.RETRY else ""
        account.say(**{_RETRY_TOPICS: retries})
    own = () if known == "yes" else known.split()
    hosts = frozenset(HostAddress(*Endpoint.parse(each)) for each in own)
    # What was sent is found by the name that the cluster had then, if it is another, or none, by now.
    cluster = account.said("cluster") if account.said(_PLANNED) is not None else None
    return replace(
        request.manner,
        cluster=request.manner.cluster if cluster is None else cluster,
        new_ids=known == "yes",
        own_hosts=hosts,
        retry_topics=frozenset(retries.split("\n")),
    )


def _report(ending: ReplayEnding, plan: ReplayPlan | None, account: ReplayAccount, reason: str = "") -> ReplayReport:
    return ReplayReport(ending, plan, account.states(), account.outcomes(), reason, int(account.said(_STARTED) or 0))


def name_servers_of(text: str) -> tuple[Endpoint, ...]:
    """Read the addresses of name servers as mqadmin's -n takes them: ``HOST:PORT;HOST:PORT``; raises ConfigError."""
    addresses: Sequence[str] = [each for each in text.replace(",", ";").split(";") if each.strip()]
    if not addresses:
        raise ConfigError("--to: expected the HOST:PORT of a name server")
    return tuple(map(Endpoint.parse, addresses))
