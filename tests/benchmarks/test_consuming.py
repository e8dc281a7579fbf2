"""The benchmarks of pulls, drains and expressions in miniature."""

from pathlib import Path

import pytest

from benchmark_store import SMALL
from benchmarks import drain, evaluate, pull
from benchmarks.floor import compile_floor, floor_server
from benchmarks.load import run_load
from benchmarks.measure import MODES, OURS
from benchmarks.server_process import ServerProcess
from benchmarks.store_plan import QUEUES, StorePlan
from interop.jars import jars
from oracles import Record, read_log


@pytest.fixture(scope="module")
def records(store: Path) -> list[Record]:
    return read_log(store / "commitlog")


def passes(record: Record, wanted: pull.Subscription) -> bool:
    """What a subscription wants, read by eye."""
    properties = record.properties
    bounds = {"amount < 40 AND region = 'r1'": 40, "amount < 4 AND region = 'r1'": 4}
    if wanted.text in bounds:
        return int(properties["amount"]) < bounds[wanted.text] and properties["region"] == "r1"
    if wanted.text == "amount < 67 AND region <> 'r1'":
        return int(properties["amount"]) < 67 and properties["region"] != "r1"
    return wanted.text in ("*", properties["TAGS"])


@pytest.mark.parametrize(
    "wanted",
    [*pull.SUBSCRIPTIONS.values(), pull.RATES["SQL92, 1 %"], pull.RATES["SQL92, 50 %"]],
    ids=lambda wanted: wanted.text,
)
def test_the_plan_knows_which_messages_a_subscription_wants(
    wanted: pull.Subscription, plan: StorePlan, records: list[Record]
) -> None:
    mask = wanted.mask(plan)
    assert mask.tolist() == [passes(record, wanted) for record in records]
    assert 0.3 < mask.sum() / (SMALL.count * wanted.share) < 2


@pytest.mark.parametrize("wanted", pull.SUBSCRIPTIONS.values(), ids=lambda wanted: wanted.text)
def test_our_server_answers_pulls_exactly(wanted: pull.Subscription, server: ServerProcess, plan: StorePlan) -> None:
    requests = pull.pull_requests(plan, 300, 5, wanted)
    outcome = run_load(server.port, requests, *MODES["4 x 16"], pid=server.pid)
    assert (outcome.errors, outcome.first_error) == (0, None)
    assert outcome.body_bytes == outcome.expected_body_bytes > 0
    assert pull.differing(requests, [server.port, server.port]) == 0


def test_a_pull_finds_as_many_as_fit_of_those_it_scans() -> None:
    parameters = SMALL.__class__(count=20_000, hot_keys=4, index_slots=97, index_entries=20_000)
    plan = StorePlan(parameters, unlucky_keys=("U0000000000",) * 4)
    wanted = pull.SUBSCRIPTIONS["SQL92"]
    requests = pull.pull_requests(plan, 50, 5, wanted)
    mask, total = wanted.mask(plan), 0
    for number in range(50):
        fields = requests.frame(number)[8:].decode()
        queue_id, offset = (int(fields.split(f'"{name}":"')[1].split('"')[0]) for name in ("queueId", "queueOffset"))
        scanned = range(offset, min(offset + pull.SCANNED, parameters.count // QUEUES))
        found = [at * QUEUES + queue_id for at in scanned if mask[at * QUEUES + queue_id]][: pull.MESSAGES]
        total += int(plan.sizes[found].sum())
    assert requests.body_bytes == total


def test_the_floor_answers_pulls_exactly_and_its_checks_find_nothing(
    store: Path, plan: StorePlan, server: ServerProcess, tmp_path: Path
) -> None:
    requests = pull.pull_requests(plan, 300, 5)
    program = compile_floor(tmp_path)
    for is_checked in (False, True):
        with floor_server(program, store, is_checked=is_checked) as floor:
            assert pull.differing(requests, [server.port, floor.port]) == 0


@pytest.mark.soak  # in each run: our own client, below
@pytest.mark.interop
def test_an_official_consumer_drains_exactly_what_passes(
    server: ServerProcess, plan: StorePlan, tmp_path: Path
) -> None:
    expected = int(drain.ONE_PERCENT.mask(plan).sum())
    side = drain.Side(OURS, server.pid, server.port)
    drain.wait_for_route(side, server)
    with drain.consumer(jars(), tmp_path / "consumer") as client:
        drained = drain.measure([side], client, expected, 2)
    assert len(drained[OURS]) == 2
    assert drain.is_exact(drained, expected)
    assert [each.repeated for each in drained[OURS]] == [0, 0]
    assert all(each.server_cpu_seconds > 0 for each in drained[OURS])


def test_a_rate_of_wrong_decisions_is_none() -> None:
    with pytest.raises(RuntimeError, match="3 messages pass, expected 4"):
        evaluate.rate(10, lambda: iter([1, 2]), 4, 1)
