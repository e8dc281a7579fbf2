"""The benchmarks of pulls, drains and expressions in miniature."""

import pytest

from benchmark_store import SMALL
from benchmarks import pull
from benchmarks.load import run_load
from benchmarks.measure import MODES
from oracles import read_log


@pytest.fixture(scope="module")
def records(store):
    return read_log(store / "commitlog")


def passes(record, wanted):
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
def test_the_plan_knows_which_messages_a_subscription_wants(wanted, plan, records) -> None:
    mask = wanted.mask(plan)
    assert mask.tolist() == [passes(record, wanted) for record in records]
    assert 0.3 < mask.sum() / (SMALL.count * wanted.share) < 2


@pytest.mark.parametrize("wanted", pull.SUBSCRIPTIONS.values(), ids=lambda wanted: wanted.text)
def test_our_server_answers_pulls_exactly(wanted, server, plan) -> None:
    requests = pull.pull_requests(plan, 300, 5, wanted)
    outcome = run_load(server.port, requests, *MODES["4 x 16"], pid=server.pid)
    assert (outcome.errors, outcome.first_error) == (0, None)
    assert outcome.body_bytes == outcome.expected_body_bytes > 0
    assert pull.differing(requests, [server.port, server.port]) == 0
