"""`rocketlens topics`, `groups` and `info`: what mqadmin printed of the recorded broker."""

import contextlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from broker_harness import service_of, serving_in_a_thread
from command_line import Outcome, rocketlens
from golden_store import CASES, G1, GOLDEN, unpack
from oracles import read_log
from protocol.fastjson import parse_fastjson
from storage.layout.rocksdb_config import EXTRA
from storage.store.message_store import MessageStore


def printed(name: str) -> list[list[str]]:
    """The rows that mqadmin printed under a heading."""
    lines = (G1 / "mqadmin-out" / f"{name}.txt").read_text("utf-8").splitlines()
    return [line.split() for line in lines if line.strip() and line[0] != "#"]


def rows_of(outcome: Outcome) -> list[dict[str, Any]]:
    assert outcome.code == 0, outcome.errors
    return outcome.messages


def test_all_topics_of_mqadmin_are_listed(where: tuple[object, ...]) -> None:
    listed = {each["topic"]: each for each in rows_of(rocketlens("topics", *where, "--json"))}
    assert {name for (name, *_) in printed("topicList")} - set(listed) <= {"TBW102", "broker-a"}
    kinds = {name: listed[name]["kind"] for name in ("TopicTest", "%RETRY%CG_SQL", "SCHEDULE_TOPIC_XXXX")}
    assert kinds == {"TopicTest": "normal", "%RETRY%CG_SQL": "retry", "SCHEDULE_TOPIC_XXXX": "system"}


def test_messages_are_counted_as_they_lie_in_the_log(where: tuple[object, ...], g1_store: Path) -> None:
    listed = {each["topic"]: each for each in rows_of(rocketlens("topics", *where, "--contains", "topict", "--json"))}
    records = [record for record in read_log(g1_store / "commitlog") if record.topic == "TopicTest"]
    assert set(listed) == {"TopicTest", "TopicTx"}
    assert listed["TopicTest"]["messages"] == len(records) > 50
    assert listed["TopicTest"]["lastTimestamp"] == max(record.store_timestamp for record in records)


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


def test_groups_that_committed_nothing_are_listed_too(where: tuple[object, ...]) -> None:
    listed = rows_of(rocketlens("groups", *where, "--json"))
    assert {"CG_FAIL", "CG_TAG", "CG_SQL", "TOOLS_CONSUMER"} <= {each["group"] for each in listed}
    assert [each["topic"] for each in listed if each["group"] == "TOOLS_CONSUMER"] == [None]


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


def test_a_store_says_its_names_its_state_and_its_sizes(g1_store: Path) -> None:
    (info,) = rows_of(rocketlens("info", g1_store, "--json"))
    files = list((g1_store / "index").iterdir())
    assert (info["indexFiles"], info["indexBytes"]) == (len(files), sum(each.stat().st_size for each in files))
    assert info["segments"] == len(list((g1_store / "commitlog").iterdir()))
    assert info["lastTimestamp"] == max(record.store_timestamp for record in read_log(g1_store / "commitlog"))
    text = rocketlens("info", g1_store).text
    for words in ("broker-a", "stopped", "physical offsets 0 to 156014", "10 files"):
        assert words in text


def test_the_problems_of_a_store_are_on_stderr(g1_crashed_store: Path) -> None:
    outcome = rocketlens("info", g1_crashed_store)
    assert outcome.code == 0
    assert "crashed" in outcome.text
    problems = json.loads(rocketlens("info", g1_crashed_store, "--json").output)["problems"]
    assert outcome.errors.splitlines() == [f"rocketlens: {each}" for each in problems]


def test_the_table_of_topics_has_a_line_a_topic(where: tuple[object, ...]) -> None:
    head, line = rocketlens("topics", *where, "--contains", "TopicTest").text.splitlines()
    assert head.split()[:4] == ["TOPIC", "KIND", "QUEUES", "MESSAGES"]
    assert line.split()[:4] == ["TopicTest", "normal", "4", "52"]


OF_A_TOPIC_THAT_IS_NOWHERE = [
    (command, *arguments, "--topic", "TopicTets")
    for command, *arguments in (
        ("find", "nobody"),
        ("find", "nobody", "--as", "key"),
        ("find", "6581"),
        ("life", "nobody"),
        ("search", "--contains", "x"),
        ("tail",),
        ("topics",),
        ("groups",),
        ("pending",),
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


def test_wrong_usage_is_code_2(g1_store: Path) -> None:
    for arguments, says in (
        (("topics", g1_store, "--topic", "a", "--contains", "b"), "exclude each other"),
        (("groups",), "expected one SOURCE"),
        (("info", g1_store, "--server", "127.0.0.1:1"), "expected one SOURCE"),
        (("info", g1_store, "--tls"), "are for a server, not for a STORE"),
    ):
        outcome = rocketlens(*arguments)
        assert (outcome.code, outcome.output) == (2, b"")
        assert says in outcome.errors


def test_a_server_that_does_not_answer_is_code_3() -> None:
    outcome = rocketlens("info", "--server", "127.0.0.1:1")
    assert outcome.code == 3
    assert "cannot connect to 127.0.0.1:1" in outcome.errors


@pytest.mark.parametrize("is_remote", [False, True])
def test_clients_that_broadcast_behind_a_proxy_are_no_group(tmp_path: Path, is_remote: bool) -> None:
    store = unpack("store", tmp_path, archives=CASES / "A1-A2-B1-pop")
    with contextlib.ExitStack() as stack:
        where: tuple[object, ...] = (store,)
        if is_remote:
            service = service_of(MessageStore.open(store))
            where = ("--server", stack.enter_context(serving_in_a_thread(service)))
        listed = {(each["group"], each["topic"]) for each in rows_of(rocketlens("groups", *where, "--json"))}
    assert {("g1", "orders"), ("g1", "%RETRY%g1_orders")} < listed
    assert not [names for names in listed if "broadcast" in names[0] or "@" in (names[1] or "")]


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


@pytest.mark.parametrize("name", ["g2-rocksdb", "g2-rocksdb-v2"])
def test_without_what_reads_rocksdb_topics_and_messages_are_found_and_what_is_not_known_is_said(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = unpack("store", tmp_path, archives=GOLDEN / "g2" / name)
    whole = {row["topic"]: row["messages"] for row in rows_of(rocketlens("topics", store, "--json")) if row["messages"]}
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    outcome = rocketlens("topics", store, "--json")
    assert {row["topic"]: row["messages"] for row in rows_of(outcome) if row["messages"]} == whole
    assert "groups and how far they have come are not known" in outcome.errors
    assert rocketlens("find", store, "0").code == 0
    assert rocketlens("find", store, "nowhere").code == 1
    groups = rocketlens("groups", store)
    assert groups.code == 3
    assert EXTRA in groups.errors


def test_a_store_of_a_broker_that_was_renamed_has_one_of_its_names_and_both_are_said(tmp_path: Path) -> None:
    outcome = rocketlens("info", unpack("store", tmp_path, archives=CASES / "B9-renamed"))
    assert "broker        new" in outcome.text
    assert "several brokers, as after it was renamed (old, new): it is taken for new" in outcome.errors


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
