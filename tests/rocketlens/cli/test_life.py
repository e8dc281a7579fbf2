"""`rocketlens life` and `rocketlens pending`: what became of a message, and what waits."""

import json
import re

import pytest

from command_line import rocketlens
from golden_store import CASES, G1, unpack
from store_writer import START_TIMESTAMP, StoreWriter

FAILED = [line.split("\t") for line in (G1 / "consumed-fail.tsv").read_text("utf-8").splitlines()[1:]]
UNIQUE_KEY, KEY = FAILED[0][4], FAILED[0][7]
TRACED = "7F0000010007"
TRACES = [line.split("\t") for line in (G1.parent / "trace-vectors.tsv").read_text("utf-8").splitlines()]
SENT_TIMESTAMP = 1_795_243_506_437
"""Of the message in the traces."""


@pytest.fixture
def whole_life(tmp_path):
    """A traced message that waited in every way there is, was retried, and given up; where its records are."""
    writer = StoreWriter(tmp_path / "store")
    in_retry = {"RETRY_TOPIC": "Topic-Pub"}
    places: list[tuple[str, dict[str, str], int]] = [
        ("RMQ_SYS_TRANS_HALF_TOPIC", {"REAL_TOPIC": "Topic-Pub"}, 0),
        ("rmq_sys_wheel_timer", {"REAL_TOPIC": "Topic-Pub", "TIMER_OUT_MS": str(SENT_TIMESTAMP + 3_000)}, 0),
        ("Topic-Pub", {}, 0),
        ("SCHEDULE_TOPIC_XXXX", {"REAL_TOPIC": "%RETRY%group-1", "DELAY": "3", **in_retry}, 1),
        ("%RETRY%group-1", in_retry, 1),
        ("%DLQ%group-1", {"DLQ_ORIGIN_TOPIC": "Topic-Pub", **in_retry}, 2),
    ]
    for number, (topic, properties, retries) in enumerate(places, 1):
        stamp = SENT_TIMESTAMP + 1_000 * number
        more = {"store_timestamp": stamp, "reconsume_times": retries, "queue_id": 2 if "DELAY" in properties else 0}
        writer.append(topic, b"body", unique_key=TRACED, properties=properties, **more)
    for kind in ("Pub", "SubBefore", "SubAfter"):
        body = next(data for each, success, _, _, data in TRACES if (each, success) == (kind, "true"))
        writer.append("RMQ_SYS_TRACE_TOPIC", bytes.fromhex(body), keys=TRACED)
    writer.close()
    config = tmp_path / "store" / "config"
    config.mkdir(exist_ok=True)
    offsets = {"Topic-Pub@group-1": {"0": 1}, "%RETRY%group-1@group-1": {"0": 1}}
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    return tmp_path / "store", [written.physical_offset for written in writer.written]


def test_a_whole_life_with_traces_is_told_in_order_of_time(whole_life) -> None:
    store, at = whole_life
    outcome = rocketlens("life", store, TRACED, "--timezone", "UTC")
    heading, *lines = outcome.text.splitlines()
    columns = "TIME (UTC) WHAT TOPIC QUEUE OFFSET PHYSICAL RETRIES GROUPS NOTE"
    assert heading.split() == columns.split()
    ends = next(number for number, line in enumerate(lines) if not line.strip())
    told = [line.split(maxsplit=2)[2] for line in lines[:ends]]
    ending = [["TRANSACTION"], ["not", "ended"], [], ["GROUP", "THIS", "MESSAGE"]]
    said = ["group-1", "gave", "up", "after", "1", "retry", "→", "DLQ"]
    assert [line.split() for line in lines[ends + 1 :]] == [*ending, said]
    assert [re.sub(" +", " ", line).strip() for line in told] == [
        "traced: sent Topic-Pub group-1 success, 17 ms",
        "traced: consuming 3 group-1",
        "traced: consumed group-1 SUCCESS, 17 ms",
        "half RMQ_SYS_TRANS_HALF_TOPIC 0 0 0 0 not ended",
        f"timer rmq_sys_wheel_timer 0 0 {at[1]} 0 delivered, until 2026-11-21 06:45:09.437+00:00",
        f"delivered Topic-Pub 0 0 {at[2]} 0 group-1 has passed",
        f"scheduled SCHEDULE_TOPIC_XXXX 2 0 {at[3]} 1 delay level 3, delivered, until 2026-11-21 06:45:20.437+00:00",
        f"retry %RETRY%group-1 0 0 {at[4]} 1 group-1 has passed",
        f"dead letter %DLQ%group-1 0 0 {at[5]} 2 group-1 gave up after 1 retry → DLQ",
    ]
    as_maps = rocketlens("life", store, TRACED, "--json").messages
    assert [event["trace"]["kind"] for event in as_maps[:3]] == ["Pub", "SubBefore", "SubAfter"]
    assert [event["message"]["queueId"] for event in as_maps[3:]] == [0, 0, 0, 2, 0, 0]


def test_traces_under_a_topic_of_ones_own_are_asked_for(tmp_path) -> None:
    writer = StoreWriter(tmp_path / "store")
    for number, topic in enumerate(("RMQ_SYS_TRACE_TOPIC", "own-traces", "more-traces")):
        kind = ("Pub", "SubBefore", "SubAfter")[number]
        body = next(data for each, success, _, _, data in TRACES if (each, success) == (kind, "true"))
        writer.append(topic, bytes.fromhex(body), keys=TRACED)
    writer.close()
    asked = ("life", tmp_path / "store", "--unique-key", TRACED, "--json")
    own = ("--trace-topic", "own-traces", "--trace-topic", "more-traces")
    for options, kinds in (((), {"Pub"}), (own[:2], {"Pub", "SubBefore"}), (own, {"Pub", "SubBefore", "SubAfter"})):
        assert {each["trace"]["kind"] for each in rocketlens(*asked, *options).messages} == kinds


def test_two_messages_of_one_id_are_told_apart(tmp_path) -> None:
    store = unpack("store", tmp_path, archives=CASES / "B6-two-messages-one-id")
    named = "7F000001000130946E09000000000001"
    outcome = rocketlens("life", store, named, "--timezone", "UTC")
    assert outcome.code == 0
    assert f"2 messages are named {named}: message 1 was sent to T and born 2023-11-14 22:13:21" in outcome.errors
    heading, *lines = outcome.text.splitlines()
    assert heading.split()[0] == "MESSAGE"
    assert [line.split()[0] for line in lines[:4]] == ["1", "2", "2", "2"]
    said = ["1 g is beyond it", "2 g gave up after 1 retry → DLQ"]
    assert [line.split() for line in lines[6:]] == [each.split() for each in said]
    rows = rocketlens("life", store, named, "--json").messages
    assert [(row["messageNumber"], row["messagesNamedSo"]) for row in rows] == [(1, 2), (2, 2), (2, 2), (2, 2)]
    assert [row["verdicts"][0]["ending"] for row in rows] == ["passed", "gave up", "gave up", "gave up"]


DUE = START_TIMESTAMP + 3_600_000


@pytest.fixture(scope="module")
def crashed(tmp_path_factory):
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


def test_counts_come_first_then_the_messages_by_due_time_and_a_program_gets_maps_of_each_kind(crashed) -> None:
    outcome = rocketlens("pending", crashed, "--timezone", "UTC")
    assert outcome.code == 0
    counts, _, messages = outcome.text.partition("\n\n")
    heading, *lines = counts.splitlines()
    assert heading.split("  ")[0] == "TOPIC"
    assert [line.split()[:5] for line in lines] == [["B", "2", "0", "1", "1"], ["A", "1", "0", "0", "0"]]
    heading, *lines = messages.splitlines()
    columns = "DUE (UTC)  STATE  TOPIC  BY  MESSAGE ID  PHYSICAL  STORED (UTC)  TAG  KEYS"
    assert heading.split() == columns.split()
    told = [" ".join(line.split()[2:]).split(" 20")[0].rsplit(" ", 2)[0] for line in lines]
    timers = ["waiting B timer, rolled 1 time", "cancelled B timer", "waiting A timer, rolled 2 times"]
    assert told == [*timers, "waiting B level 18"]
    assert "timercheck is missing or empty: timer messages that were due when" in outcome.errors
    assert "delayOffset.json is missing: delayed messages that were due when" in outcome.errors
    as_of, *rest = rocketlens("pending", crashed, "--json").messages
    assert (as_of["kind"], as_of["timersKnown"], as_of["levelsKnown"]) == ("asOf", False, False)
    assert [each["kind"] for each in rest] == ["topic"] * 2 + ["message"] * 4
    found = [(each["topic"], each["waiting"], each["rolled"], each["cancelRequests"]) for each in rest[:2]]
    assert found == [("B", 2, 1, 1), ("A", 1, 0, 0)]
    found = [(each["message"]["uniqueKey"], each["delayLevel"], each["rolls"]) for each in rest[2:]]
    assert found == [("K1", None, 1), ("K3", None, 0), ("K2", None, 2), ("K5", 18, 0)]
    assert rest[2]["dueTimestamp"] == DUE
    assert rest[5]["dueTimestamp"] == rest[5]["message"]["storeTimestamp"] + 2 * 3_600_000


def test_a_limit_and_times_narrow_what_is_listed(crashed) -> None:
    outcome = rocketlens("pending", crashed, "--limit", "1")
    assert len(outcome.text.partition("\n\n")[2].splitlines()) == 2
    assert "3 messages more that are due later: use a higher --limit" in outcome.errors
    counts_alone = rocketlens("pending", crashed, "--limit", "0", "--json").messages
    assert [each["kind"] for each in counts_alone] == ["asOf", "topic", "topic"]
    stored = ("--since", START_TIMESTAMP, "--until", START_TIMESTAMP + 60_000)
    outcome = rocketlens("pending", crashed, "--due-after", DUE + 1, "--due-before", DUE + 1000, *stored, "--json")
    assert [each["message"]["uniqueKey"] for each in outcome.messages if each["kind"] == "message"] == ["K2"]
    assert "is after --due-before" in rocketlens("pending", crashed, "--due-after", DUE, "--due-before", 5).errors
