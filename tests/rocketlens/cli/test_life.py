"""`rocketlens life`, and `rocketlens find --copies`: from a store, and from its server."""

import json
import re
from pathlib import Path

import msgpack
import pytest

from broker.endpoint import Endpoint
from broker_harness import service_of, serving_in_a_thread
from command_line import rocketlens
from golden_store import CASES, G1, unpack
from storage.store.message_store import MessageStore
from store_writer import StoreWriter

FAILED = [line.split("\t") for line in (G1 / "consumed-fail.tsv").read_text("utf-8").splitlines()[1:]]
UNIQUE_KEY, KEY = FAILED[0][4], FAILED[0][7]
STAGES = ["delivered", "scheduled", "retry"]
TRACED = "7F0000010007"
TRACES = [line.split("\t") for line in (G1.parent / "trace-vectors.tsv").read_text("utf-8").splitlines()]
SENT_TIMESTAMP = 1_795_243_506_437
"""Of the message in the traces."""


def test_a_life_is_a_table_for_people(g1_store: Path) -> None:
    outcome = rocketlens("life", g1_store, UNIQUE_KEY, "--timezone", "UTC")
    assert (outcome.code, outcome.errors) == (0, "")
    heading, *lines, _, group_heading, verdict = outcome.text.splitlines()
    assert group_heading.split() == ["GROUP", "THIS", "MESSAGE"]
    assert verdict.split() == ["CG_FAIL", "failed,", "retry", "1", "waits"]
    assert heading.split() == [
        "TIME",
        "(UTC)",
        "WHAT",
        "TOPIC",
        "QUEUE",
        "OFFSET",
        "PHYSICAL",
        "RETRIES",
        "GROUPS",
        "NOTE",
    ]
    assert [stage in line for stage, line in zip(STAGES, lines, strict=True)] == [True] * 3
    assert "CG_FAIL has passed" in lines[0]
    assert "delay level 3, delivered, until " in lines[1]


def test_and_maps_for_programs(g1_store: Path) -> None:
    outcome = rocketlens("life", g1_store, UNIQUE_KEY, "--json")
    assert [event["stage"] for event in outcome.messages] == STAGES
    assert [event["message"]["uniqueKey"] for event in outcome.messages] == [UNIQUE_KEY] * 3
    progress = {"group": "CG_FAIL", "nextOffset": 10, "hasPassed": True, "passage": "consumed", "untilTimestamp": None}
    assert outcome.messages[0]["groups"] == [progress]
    verdict = {"group": "CG_FAIL", "ending": "retrying", "retries": 1, "text": "failed, retry 1 waits"}
    for event in outcome.messages:
        assert (event["messageNumber"], event["messagesNamedSo"], event["transaction"]) == (1, 1, None)
        assert event["verdicts"] == [{**verdict, "untilTimestamp": None}]
    packed = rocketlens("life", g1_store, UNIQUE_KEY, "--format", "msgpack")
    unpacker = msgpack.Unpacker()
    unpacker.feed(packed.output)
    assert [event["message"]["body"] for event in unpacker] == [b"batch body 0"] * 3


@pytest.fixture
def whole_life(tmp_path: Path) -> tuple[Path, list[int]]:
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


def test_a_whole_life_with_traces_is_told_in_order_of_time(whole_life: tuple[Path, list[int]]) -> None:
    store, at = whole_life
    outcome = rocketlens("life", store, TRACED)
    _, *lines = outcome.text.splitlines()
    ends = next(number for number, line in enumerate(lines) if not line.strip())
    told = [line.split(maxsplit=2)[2] for line in lines[:ends]]
    assert [line.split() for line in lines[ends + 1 :]] == [
        ["TRANSACTION"],
        ["not", "ended"],
        [],
        ["GROUP", "THIS", "MESSAGE"],
        ["group-1", *["gave", "up", "after", "1", "retry", "→", "DLQ"]],
    ]
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


def test_traces_under_a_topic_of_ones_own_are_asked_for(tmp_path: Path) -> None:
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


def test_no_key_is_refused(g1_store: Path) -> None:
    for arguments in ((), ("",), ("a", "--unique-key", "b")):
        outcome = rocketlens("life", g1_store, *arguments)
        assert outcome.code == 2
        assert "and behind it one TEXT" in outcome.errors


@pytest.mark.parametrize("question", [(KEY, "--as", "key"), (UNIQUE_KEY, "--as", "unique-key")])
def test_copies_are_found_in_a_store_and_by_its_server(
    g1_store: Path, server: Endpoint, question: tuple[str, ...]
) -> None:
    answers = []
    for where in ((g1_store,), ("--server", server)):
        asked = ("find", *where, *question, "--topic", "TopicBatch", "--json")
        assert len(rocketlens(*asked).messages) == 1
        outcome = rocketlens(*asked, "--copies")
        assert [(message["stage"], message["uniqueKey"]) for message in outcome.messages] == [
            (stage, UNIQUE_KEY) for stage in reversed(STAGES)
        ]
        answers.append(outcome.output)
    assert answers[0] == answers[1]


@pytest.mark.parametrize("where", ["store", "server"])
def test_copies_come_in_pages_too(g1_store: Path, server: Endpoint, where: str) -> None:
    place = (g1_store,) if where == "store" else ("--server", server)
    asked = ("find", *place, "TagC", "--as", "tag", "--topic", "TopicBatch", "--copies", "--json")
    everything = [message["physicalOffset"] for message in rocketlens(*asked).messages]
    assert len(everything) == 3 * len(FAILED)
    newest = rocketlens(*asked, "--limit", "7")
    assert [message["physicalOffset"] for message in newest.messages] == everything[:7]
    assert f"--cursor {everything[6]}\n" in newest.errors
    rest = rocketlens(*asked, "--cursor", everything[6])
    assert [message["physicalOffset"] for message in rest.messages] == everything[7:]


def test_the_table_with_copies_has_stage_and_topic(g1_store: Path) -> None:
    outcome = rocketlens("find", g1_store, KEY, "--as", "key", "--topic", "TopicBatch", "--copies")
    heading, *rows = outcome.text.splitlines()
    assert heading.split()[-3:] == ["TAG", "KEYS", "BODY"]
    assert [row.split()[2] for row in rows] == list(reversed(STAGES))


def test_no_copies_are_no_answer(g1_store: Path, server: Endpoint) -> None:
    for where in ((g1_store,), ("--server", server)):
        outcome = rocketlens("find", *where, "nosuchkey", "--as", "key", "--topic", "TopicBatch", "--copies", "-v")
        assert (outcome.code, outcome.output) == (1, b"")
        assert "searched 10 index files" in outcome.errors


def test_what_is_nowhere_is_said_as_by_find(g1_store: Path, server: Endpoint) -> None:
    for where in (g1_store, server):
        outcome = rocketlens("life", where, "nobody")
        assert (outcome.code, outcome.errors) == (1, rocketlens("find", where, "nobody").errors)
        assert outcome.errors.startswith("rocketlens: nothing is named nobody in ")


def test_two_messages_of_one_id_are_told_apart(tmp_path: Path) -> None:
    store, named = (
        unpack("store", tmp_path, archives=CASES / "B6-two-messages-one-id"),
        "7F000001000130946E09000000000001",
    )
    outcome = rocketlens("life", store, named, "--timezone", "UTC")
    assert outcome.code == 0
    assert f"2 messages are named {named}: message 1 was sent to T and born 2023-11-14 22:13:21" in outcome.errors
    heading, *lines = outcome.text.splitlines()
    assert heading.split()[0] == "MESSAGE"
    assert [line.split()[0] for line in lines[:4]] == ["1", "2", "2", "2"]
    assert [line.split() for line in lines[6:]] == [
        ["1", "g", *["is", "beyond", "it"]],
        ["2", "g", *["gave", "up", "after", "1", "retry", "→", "DLQ"]],
    ]
    rows = rocketlens("life", store, named, "--json").messages
    assert [(row["messageNumber"], row["messagesNamedSo"]) for row in rows] == [(1, 2), (2, 2), (2, 2), (2, 2)]
    assert [row["verdicts"][0]["ending"] for row in rows] == ["passed", "gave up", "gave up", "gave up"]


def test_a_popped_message_says_when_it_comes_back(tmp_path: Path) -> None:
    store = unpack("store", tmp_path, archives=CASES / "A1-A2-B1-pop")
    named = "01DB0BBDD3781837B40B19BB3500000000"
    outcome = rocketlens("life", store, named, "--timezone", "UTC")
    said = "g1 popped it, not acknowledged: comes back 2026-11-26 12:28:22.653+00:00 or later"
    assert said in outcome.text
    assert "has passed" not in outcome.text
    (row,) = rocketlens("life", store, named, "--json").messages
    (group,) = row["groups"]
    assert (group["hasPassed"], group["passage"], group["untilTimestamp"]) == (False, "popped", 1795696102653)


def test_a_transaction_says_how_it_ended(tmp_path: Path) -> None:
    store = unpack("store", tmp_path, archives=CASES / "A3-A4-transactions")
    outcome = rocketlens("life", store, "7F00000178B030946E098360A2030004")
    assert "checked 3 times, given up (6091)" in outcome.text
    assert [line.strip() for line in outcome.text.splitlines()[-2:]] == ["TRANSACTION", "discarded"]


def test_a_message_is_named_by_whatever_find_takes(g1_store: Path) -> None:
    life = rocketlens("life", g1_store, UNIQUE_KEY, "--json")
    assert rocketlens("life", g1_store, "--unique-key", UNIQUE_KEY, "--json") == life
    message = rocketlens("find", g1_store, UNIQUE_KEY, "--json").messages[0]
    for text in (message["physicalOffset"], message["offsetMessageId"]):
        named = rocketlens("life", g1_store, text, "--json")
        assert (named.code, named.output) == (0, life.output)
        assert f"rocketlens: 1 message is named {text}: this is {UNIQUE_KEY}\n" in named.errors


def test_the_words_of_a_text_and_keys_in_a_list_are_resolved_as_by_find(tmp_path: Path) -> None:
    store = unpack("store", tmp_path, archives=CASES / "B4-keys-with-blanks")
    with serving_in_a_thread(service_of(MessageStore.open(store))) as server:
        for where in (store, server):
            for text in ("order-1", "order 4711"):
                named = rocketlens("find", where, text, "--json")
                life = rocketlens("life", where, text, "--json")
                (message,) = named.messages
                assert (life.code, [each["message"]["uniqueKey"] for each in life.messages]) == (
                    0,
                    [message["uniqueKey"]],
                )
                assert named.errors.splitlines()[0] in life.errors.splitlines()
                assert f"1 message is named {text}: this is {message['uniqueKey']}" in life.errors
            assert rocketlens("life", where, "no body").code == 1


def test_of_several_messages_of_a_name_the_newest_is_shown_and_others_are_named(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    for number in range(9):
        writer.append("orders", keys="o-1", unique_key=f"u-{number}", born_timestamp=1_700_000_000_000 + number)
    writer.close()
    outcome = rocketlens("life", writer.root, "o-1", "--json")
    assert [each["message"]["uniqueKey"] for each in outcome.messages] == ["u-8"]
    assert "9 messages are named o-1: this is u-8; others are u-7, u-6, u-5, u-4, u-3 …" in outcome.errors
    assert rocketlens("life", writer.root, "nosuchkey").code == 1
