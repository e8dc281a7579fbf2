"""Every recorded session, played against our server on the store that its broker left behind.

Codes, remarks, header fields and bodies must be as recorded (JSON by its values, records byte for byte), except where a
rule of `golden_deviations` says otherwise. The server advertises the address that the recorded broker had.
"""

import asyncio
import json
from dataclasses import replace

import pytest

from broker.endpoint import Endpoint
from broker.service._refusals import WRITING_CODES
from broker.service.dispatcher import handled_methods
from broker.service.request_families import PROCESSORS
from broker_harness import service_of, serving
from golden_deviations import DEVIATIONS, LARGEST_NUMBER, expected_of, is_same, refusal_of
from golden_frames import Exchange, Session, consumer_sessions, sessions, value_of
from golden_replay import Outcome, replay
from golden_store import unpack
from interop.wire import Frame
from protocol.codes import RequestCode
from storage.layout.delay_levels import DEFAULT_DELAY_LEVELS
from storage.store.message_store import MessageStore, StoreOptions

SESSIONS = {session.name: session for session in [*sessions(), *consumer_sessions()]}
ANSWERED = frozenset(code for family in PROCESSORS for code, _, _ in handled_methods(family)) | WRITING_CODES


def advertised_address(exchanges: list[Exchange]) -> Endpoint:
    """The address under which the recorded broker was known."""
    cluster_info = next(exchange for exchange in exchanges if exchange.code == RequestCode.GET_BROKER_CLUSTER_INFO)
    assert cluster_info.recorded is not None
    (broker,) = value_of(cluster_info.recorded.body)["brokerAddrTable"].values()
    return Endpoint.parse(broker["brokerAddrs"]["0"])


def play(
    name: str, tmp_path_factory: pytest.TempPathFactory, asked: list[tuple[tuple[int, int], Frame]]
) -> list[Outcome]:
    session, exchanges = SESSIONS[name], SESSIONS[name].exchanges()
    root = unpack("store", tmp_path_factory.mktemp(session.archive.parent.name), archives=session.archive.parent)
    log_directories = tuple(sorted(path for path in root.glob("commitlog-*") if path.is_dir()))
    recorded = session.archive.with_name("store.json")
    levels = json.loads(recorded.read_text())["properties"]["messageDelayLevel"] if recorded.exists() else None
    options = StoreOptions(commit_log_directories=log_directories, delay_levels=levels or DEFAULT_DELAY_LEVELS)
    store = MessageStore.open(root, options)

    async def run() -> list[Outcome]:
        service = service_of(store, advertise=advertised_address(exchanges))
        async with serving(service) as server:
            return await replay(exchanges, *server.addresses[0], asked)

    return asyncio.run(run())


ASKED: dict[str, list[tuple[tuple[int, int], Frame]]] = {name: [] for name in SESSIONS}
"""What the server asked in each session in turn, with the connection."""


@pytest.fixture(scope="session")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Outcome]]:
    """Our answers to each session, in its order."""
    return {name: play(name, tmp_path_factory, ASKED[name]) for name in SESSIONS}


@pytest.mark.parametrize("name", SESSIONS)
def test_recorded_requests_are_answered_as_recorded(name: str, outcomes: dict[str, list[Outcome]]) -> None:
    assert outcomes[name]
    for outcome in outcomes[name]:
        exchange, ours = outcome.exchange, outcome.ours
        if exchange.recorded is None:
            continue
        assert ours is not None
        refusal = refusal_of(exchange, ANSWERED)
        expected, rules = (refusal, ["refusal"]) if refusal is not None else expected_of(exchange, ours)
        if not is_same(expected, ours):
            told = f"{exchange}, by {', '.join(rules)}" if rules else f"{exchange}, as recorded"
            assert replace(expected, body=b"") == replace(ours, body=b""), told
            assert value_of(expected.body) == value_of(ours.body), told


def test_every_rule_is_needed_and_there_are_at_most_twelve(outcomes: dict[str, list[Outcome]]) -> None:
    answered = (each for session in outcomes.values() for each in session if each.ours is not None)
    plain = ((each.exchange, each.ours) for each in answered if refusal_of(each.exchange, ANSWERED) is None)
    used = {name for exchange, ours in plain if ours is not None for name in expected_of(exchange, ours)[1]}
    assert sorted(used) == sorted(rule.name for rule in DEVIATIONS)
    assert len(DEVIATIONS) <= LARGEST_NUMBER


@pytest.mark.usefixtures("outcomes")
@pytest.mark.parametrize("session", consumer_sessions(), ids=lambda session: session.name)
def test_members_are_told_of_changes_in_their_group_as_recorded(session: Session) -> None:
    asked = ASKED[session.name]
    assert {(frame.code, frame.header["flag"]) for _, frame in asked} == {(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, 2)}
    assert sorted((place, frame.header["extFields"]["consumerGroup"]) for place, frame in asked) == session.notices()
