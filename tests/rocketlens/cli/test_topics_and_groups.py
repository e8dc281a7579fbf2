"""`rocketlens topics`, `groups` and `info`: what mqadmin printed of the recorded broker."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from broker_harness import service_of, serving_in_a_thread
from command_line import Outcome, rocketlens
from golden_store import CASES, G1, unpack
from protocol.fastjson import parse_fastjson
from storage.store.message_store import MessageStore


def printed(name: str) -> list[list[str]]:
    """The rows that mqadmin printed under a heading."""
    lines = (G1 / "mqadmin-out" / f"{name}.txt").read_text("utf-8").splitlines()
    return [line.split() for line in lines if line.strip() and line[0] != "#"]


def rows_of(outcome: Outcome) -> list[dict[str, Any]]:
    assert outcome.code == 0, outcome.errors
    return outcome.messages


def test_the_queues_of_a_topic_have_the_offsets_that_mqadmin_printed(where: tuple[object, ...]) -> None:
    queues = rows_of(rocketlens("topics", *where, "--topic", "TopicTest", "--json"))
    expected = [(int(row[1]), int(row[2]), int(row[3])) for row in printed("topicStatus") if row[0] == "broker-a"]
    assert len(expected) == 4
    assert [(each["queueId"], each["minOffset"], each["maxOffset"]) for each in queues] == expected
    assert all(each["lastTimestamp"] for each in queues)


def test_how_far_groups_are_behind_is_what_mqadmin_printed(where: tuple[object, ...]) -> None:
    listed = rows_of(rocketlens("groups", *where, "--topic", "TopicTest", "--json"))
    expected = {row[0]: int(row[-1]) for row in printed("consumerProgress")}
    assert {each["group"]: each["lag"] for each in listed} == {name: expected[name] for name in ("CG_TAG", "CG_SQL")}
    assert expected["CG_TAG"] == 44


def test_a_group_is_shown_queue_by_queue(where: tuple[object, ...]) -> None:
    (row,) = rows_of(rocketlens("groups", *where, "--group", "CG_TAG", "--json"))
    expected = [[int(each) for each in line[2:6]] for line in printed("consumerProgress-gt") if line[1] == "broker-a"]
    names = ("queueId", "endOffset", "nextOffset", "lag")
    assert [[each[name] for name in names] for each in row["queues"]] == expected
    assert len(expected) == 4
    lines = rocketlens("groups", *where, "--group", "CG_TAG").text.splitlines()
    assert [line.split()[1:] for line in lines[1:]] == [
        ["TopicTest", *map(str, (queue_id, consumed, end, lag))] for queue_id, end, consumed, lag in expected
    ]


def test_how_far_the_log_reaches_is_what_mqadmin_printed(where: tuple[object, ...]) -> None:
    (info,) = rows_of(rocketlens("info", *where, "--json"))
    lines = (G1 / "mqadmin-out" / "brokerStatus.txt").read_text().splitlines()
    status = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    assert info["minOffset"] == int(status["commitLogMinOffset"])
    assert info["endOffset"] == int(status["commitLogMaxOffset"])
    assert info["firstTimestamp"] == int(status["earliestMessageTimeStamp"])
    assert (info["broker"], info["cluster"], info["state"]) == ("broker-a", "DefaultCluster", "stopped")
    assert info["topics"] == len(rows_of(rocketlens("topics", *where, "--json")))
    assert info["groups"] == len({each["group"] for each in rows_of(rocketlens("groups", *where, "--json"))})


OF_A_TOPIC_THAT_IS_NOWHERE = [
    (command, *arguments, "--topic", "TopicTets")
    for command, *arguments in (
        ("find", "nobody"),
        ("life", "nobody"),
        ("search", "--contains", "x"),
        ("tail",),
        ("topics",),
        ("groups",),
    )
]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        *((each, "there is no topic TopicTets; did you mean TopicTest") for each in OF_A_TOPIC_THAT_IS_NOWHERE),
        (("topics", "--contains", "nowhere"), "no topic holds nowhere in its name"),
        (("groups", "--group", "CG_TGA"), "there is no consumer group CG_TGA; did you mean CG_TAG"),
        (("groups", "--group", "CG_TAG", "--topic", "TopicBatch"), "group CG_TAG has committed no offset in topic"),
    ],
)
def test_what_is_not_there_is_code_1_with_what_may_be_meant(
    where: tuple[object, ...], arguments: tuple[str, ...], says: str
) -> None:
    outcome = rocketlens(arguments[0], *where, *arguments[1:])
    assert (outcome.code, outcome.output) == (1, b"")
    assert says in outcome.errors


def test_what_a_group_popped_and_did_not_acknowledge_is_not_behind_and_said(tmp_path: Path) -> None:
    store = unpack("store", tmp_path, archives=CASES / "A1-A2-B1-pop")
    outcome = rocketlens("groups", store, "--topic", "orders", "--json")
    (row,) = rows_of(outcome)
    assert (row["group"], row["lag"], row["popped"]) == ("g1", 0, 1)
    assert [(queue["queueId"], queue["popped"]) for queue in row["queues"]] == [(0, 1)]
    said = "group g1 has popped 1 message of topic orders and not acknowledged it: BEHIND counts it as consumed"
    assert said in outcome.errors
    (back,) = rows_of(rocketlens("groups", store, "--topic", "%RETRY%g1_orders", "--json"))
    assert (back["lag"], back["popped"]) == (0, 0)
    for options, heading in (((), "QUEUES"), (("--group", "g1"), "NEXT")):
        lines = rocketlens("groups", store, "--topic", "orders", *options).text.splitlines()
        assert heading in lines[0]
        assert (lines[0].split()[-1], lines[1].split()[-1]) == ("POPPED", "1")


def test_an_older_file_of_offsets_that_is_used_instead_is_said_with_the_offsets(tmp_path: Path) -> None:
    """The file holds a whole object and the end of an older, longer one, of which a broker reads nothing."""
    store = unpack("store", tmp_path, archives=CASES / "B13-stale-tail-json")
    outcome = rocketlens("groups", store, "--json")
    assert [(row["group"], row["queues"][0]["nextOffset"]) for row in rows_of(outcome)] == [("g", 4)]
    end = (store / "config" / "consumerOffset.json").read_bytes().index(b"\n}") + 2
    assert f"a whole object ends at byte {end}, with group g at 10 of orders 0" in outcome.errors
    assert "consumerOffset.json.bak is used instead" in outcome.errors


def test_a_topic_whose_messages_are_gone_has_no_time_of_its_last_from_a_server_either(tmp_path: Path) -> None:
    """A broker answers −1 for the time of a message that it no longer has."""
    store = unpack("store", tmp_path, archives=CASES / "B5-expired-origin")
    with serving_in_a_thread(service_of(MessageStore.open(store))) as server:
        sources = (str(store), server)
        of_topics = [{row["topic"]: row for row in rows_of(rocketlens("topics", each, "--json"))} for each in sources]
        of_queues = [rows_of(rocketlens("topics", each, "orders", "--json")) for each in sources]
    assert of_topics[0]["orders"]["lastTimestamp"] is None
    for here, there in ((of_topics[0].values(), of_topics[1].values()), of_queues):
        assert [row["lastTimestamp"] for row in here] == [row["lastTimestamp"] for row in there]


def test_a_configuration_of_topics_that_is_broken_is_one_warning(g1_store: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(g1_store, broken)
    config = broken / "config" / "topics.json"
    config.write_bytes(config.read_bytes()[:100])
    config.with_name("topics.json.bak").unlink()
    warning = f"rocketlens: topics may be missing: {config}: what it says is not known"
    with_queues = {each.name for each in (g1_store / "consumequeue").iterdir()}
    listed = rocketlens("topics", broken, "--json")
    assert {each["topic"] for each in listed.messages} == with_queues
    found = rocketlens("find", broken, "hotkey", "--json")
    assert found.messages == rocketlens("find", g1_store, "hotkey", "--json").messages
    assert rocketlens("find", broken, "nobody", "--topic", "TopicTets").errors.count("there is no topic") == 0
    for outcome in (listed, found):
        assert (outcome.code, outcome.errors.count(warning), outcome.errors.count("topics.json:")) == (0, 1, 1)
    diagnosis = json.loads(rocketlens("doctor", broken, "--json").output)
    assert len([each for each in diagnosis["findings"] if str(config) in json.dumps(each)]) == 1


def test_a_group_that_is_ahead_of_a_queue_is_not_up_to_date(g1_store: Path, tmp_path: Path) -> None:
    """The files of the queue are lost, and the log still has its messages: it ends where it did."""
    store = Path(shutil.copytree(g1_store, tmp_path / "store"))
    shutil.rmtree(store / "consumequeue" / "TopicTest" / "2")
    offsets = store / "config" / "consumerOffset.json"
    content = parse_fastjson(offsets.read_bytes())
    content["offsetTable"]["TopicTest@CG_TAG"]["2"] = 99
    offsets.write_text(json.dumps(content))
    outcome = rocketlens("groups", store, "--group", "CG_TAG", "--json")
    (row,) = rows_of(outcome)
    (end,) = [int(line[3]) for line in printed("consumerProgress-gt") if line[1:3] == ["broker-a", "2"]]
    queues = {each["queueId"]: each for each in row["queues"]}
    assert (queues[2]["nextOffset"], queues[2]["endOffset"], queues[2]["lag"], row["lag"]) == (99, end, None, None)
    assert [queues[each]["lag"] > 0 for each in (0, 1, 3)] == [True] * 3
    assert outcome.errors == (
        "rocketlens: group CG_TAG is ahead of queue 2 of topic TopicTest: it reads 99 next, and the "
        f"queue ends at {end}; files of it may be lost\n"
    )
    line = rocketlens("groups", store, "--group", "CG_TAG").text.splitlines()[3]
    assert line.split()[-4:] == ["2", "99", str(end), "unknown"]


def test_what_groups_popped_is_not_known_where_it_is_in_a_database(tmp_path: Path) -> None:
    store = unpack("store", tmp_path, archives=CASES / "A1-A2-B1-pop")
    with serving_in_a_thread(service_of(MessageStore.open(store))) as server:
        assert rocketlens("groups", server, "--json") == rocketlens("groups", store, "--json")
    (store / "kvStore").mkdir()
    (store / "kvStore" / "CURRENT").write_text("MANIFEST-000004")
    with serving_in_a_thread(service_of(MessageStore.open(store))) as server:
        outcome = rocketlens("groups", store, "--json")
        assert {row["popped"] for row in rows_of(outcome)} == {None}
        assert "popped and not acknowledged is not known, and counts as consumed" in outcome.errors
        served = rocketlens("groups", server, "--json")
        assert (served.output, "is not known, and counts as consumed" in served.errors) == (outcome.output, True)


def test_a_store_of_a_broker_that_was_renamed_has_one_of_its_names_and_both_are_said(tmp_path: Path) -> None:
    outcome = rocketlens("info", unpack("store", tmp_path, archives=CASES / "B9-renamed"))
    assert "broker        new" in outcome.text
    assert "several brokers, as after it was renamed (old, new): it is taken for new" in outcome.errors
