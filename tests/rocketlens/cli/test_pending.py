"""`rocketlens pending`: what an operator and a program see of the messages that wait."""

from pathlib import Path

import pytest

from command_line import rocketlens
from golden_store import GOLDEN, unpack
from store_writer import START_TIMESTAMP, StoreWriter

DUE = START_TIMESTAMP + 3_600_000


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A broker's store, in which one timer message of a day waits."""
    return unpack("store", tmp_path_factory.mktemp("g2"), archives=GOLDEN / "g2" / "g2-queues")


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store without the checkpoints of timer and delay levels: rolled, cancelled and delayed messages."""
    writer = StoreWriter(tmp_path_factory.mktemp("crashed") / "store")
    for topic, key, rolls, due in (("B", "K1", 0, DUE), ("B", "K1", 1, DUE), ("A", "K2", 2, DUE + 1000)):
        more = {"TIMER_OUT_MS": str(due), "REAL_TOPIC": topic} | ({"TIMER_ROLL_TIMES": str(rolls)} if rolls else {})
        writer.append("rmq_sys_wheel_timer", properties=more, unique_key=key, tags="TagX", keys="k1 k2")
    more = {"TIMER_OUT_MS": str(DUE), "REAL_TOPIC": "B"}
    writer.append("rmq_sys_wheel_timer", properties=more, unique_key="K3")
    writer.append("rmq_sys_wheel_timer", properties=more | {"TIMER_DEL_UNIQKEY": "K3"}, unique_key="K4")
    writer.append("SCHEDULE_TOPIC_XXXX", properties={"REAL_TOPIC": "B", "DELAY": "18"}, queue_id=17, unique_key="K5")
    writer.crash()
    return writer.root


def test_counts_come_first_then_the_messages_by_due_time(crashed: Path) -> None:
    outcome = rocketlens("pending", crashed, "--timezone", "UTC")
    assert outcome.code == 0
    counts, _, messages = outcome.text.partition("\n\n")
    heading, *lines = counts.splitlines()
    assert heading.split("  ")[0] == "TOPIC"
    assert [line.split()[:5] for line in lines] == [["B", "2", "0", "1", "1"], ["A", "1", "0", "0", "0"]]
    heading, *lines = messages.splitlines()
    columns = "DUE (UTC)  STATE  TOPIC  BY  MESSAGE ID  PHYSICAL  STORED (UTC)  TAG  KEYS"
    assert heading.split() == columns.split()
    assert [" ".join(line.split()[2:]).split(" 20")[0].rsplit(" ", 2)[0] for line in lines] == [
        "waiting B timer, rolled 1 time",
        "cancelled B timer",
        "waiting A timer, rolled 2 times",
        "waiting B level 18",
    ]
    assert "timercheck is missing or empty: timer messages that were due when" in outcome.errors
    assert "delayOffset.json is missing: delayed messages that were due when" in outcome.errors


def test_a_program_gets_maps_of_each_kind(crashed: Path) -> None:
    as_of, *rest = rocketlens("pending", crashed, "--json").messages
    assert (as_of["kind"], as_of["timersKnown"], as_of["levelsKnown"]) == ("asOf", False, False)
    assert [each["kind"] for each in rest] == ["topic"] * 2 + ["message"] * 4
    assert [(each["topic"], each["waiting"], each["rolled"], each["cancelRequests"]) for each in rest[:2]] == [
        ("B", 2, 1, 1),
        ("A", 1, 0, 0),
    ]
    assert [(each["message"]["uniqueKey"], each["delayLevel"], each["rolls"]) for each in rest[2:]] == [
        ("K1", None, 1),
        ("K3", None, 0),
        ("K2", None, 2),
        ("K5", 18, 0),
    ]
    assert rest[2]["dueTimestamp"] == DUE
    assert rest[5]["dueTimestamp"] == rest[5]["message"]["storeTimestamp"] + 2 * 3_600_000


def test_a_limit_is_said_to_be_one(crashed: Path) -> None:
    outcome = rocketlens("pending", crashed, "--limit", "1")
    assert len(outcome.text.partition("\n\n")[2].splitlines()) == 2
    assert "3 messages more that are due later: use a higher --limit" in outcome.errors
    counts_alone = rocketlens("pending", crashed, "--limit", "0", "--json").messages
    assert [each["kind"] for each in counts_alone] == ["asOf", "topic", "topic"]


def test_nothing_that_waits_is_said_and_has_an_exit_code(recorded: Path, g1_store: Path) -> None:
    outcome = rocketlens("pending", recorded, "--topic", "NoSuchTopic")
    assert (outcome.code, outcome.output) == (1, b"")
    assert outcome.errors == "rocketlens: there is no topic NoSuchTopic\n"
    assert rocketlens("pending", g1_store).code == 1
