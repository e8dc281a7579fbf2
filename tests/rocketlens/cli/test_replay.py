"""`rocketlens replay` as it is typed: the plan, what is sent, and what is said of both."""

import contextlib
import json
import sqlite3

import pytest

import rocketlens as face
from command_line import rocketlens
from taking_broker import TakingBroker

TOPICS = {"TopicTest": 4, "BulkTopic": 4, "TopicDelay": 4, "Other": 2, "%RETRY%CG_FAIL": 1}


@pytest.fixture
def broker():
    with TakingBroker(dict(TOPICS), groups=("CG_TAG",)).serving() as serving:
        yield serving


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch) -> None:
    """Accounts lie where a command runs."""
    monkeypatch.chdir(tmp_path)


def test_the_plan_is_printed_and_nothing_is_sent(g1_store, broker, tmp_path) -> None:
    outcome = rocketlens("replay", g1_store, "--topic", "TopicTest", "--to", broker.address, "--rate", 26, "--json")
    assert outcome.code == 0
    (planned,) = outcome.messages
    found = [planned[name] for name in ("topic", "messages", "queues", "groups")]
    assert found == ["TopicTest", 52, 4, ["CG_TAG"]]
    assert "52 messages would be sent in 2 s; nothing is sent without --go" in outcome.errors
    assert broker.log == []
    assert list(tmp_path.glob("rocketlens-replay-*")) == []
    table = rocketlens("replay", g1_store, "--topic", "TopicTest", "--to", broker.address)
    assert "TopicTest" in table.text


def test_what_was_sent_is_counted_and_the_same_command_sends_no_more(g1_store, broker) -> None:
    typed = ("replay", g1_store, "--topic", "TopicTest", "--to", broker.address, "--go", "--verify", "--json")
    outcome = rocketlens(*typed)
    assert outcome.code == 0
    said = outcome.messages[-1]
    assert (said["sent"], said["verified"], said["double"], said["missing"], len(broker.log)) == (52, 52, 0, 0, 52)
    assert f"mqadmin resetOffsetByTime -n '{broker.address}' -g CG_TAG -t TopicTest -s " in outcome.errors
    with contextlib.closing(sqlite3.connect(said["account"])) as account:
        rows = account.execute("SELECT unique_key, sent_id FROM message").fetchall()
    with face.open(g1_store) as opened:
        assert {key for key, _ in rows} == {each.unique_key for each in opened.search(topic="TopicTest")}
    assert rocketlens(*typed).messages[-1]["sent"] == 52
    assert len(broker.log) == 52
    broker._store({"b": "TopicTest", "e": "0", "f": "0", "g": "0", "j": "0"}, 0, broker.log[0].body, text_of(broker))
    double = rocketlens(*typed)
    assert (double.code, double.messages[-1]["double"]) == (1, 1)
    assert f"double: {broker.log[0].properties['UNIQ_KEY']} at " in double.errors
    assert "is no account of a replay" in rocketlens(*typed, "--fresh", "--account", __file__).errors
    again = rocketlens(*typed, "--fresh")
    assert (again.code, again.messages[-1]["refused"]) == (1, 52)
    assert "an earlier run has sent it" in again.errors


def text_of(broker: TakingBroker) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in broker.log[0].properties.items())


@pytest.mark.parametrize(
    ("typed", "count"),
    [
        (["--topic", "BulkTopic", "--limit", "7"], 7),
        (["--topic", "TopicTest", "--contains", "hot 3", "--in", "body"], 11),
        (["--topic", "TopicTest", "--regex", "hot 3$", "--charset", "utf-8"], 1),
        (["--topic", "TopicTest", "--where", "region = 'sh' AND a > 30"], None),
        (["--topic", "TopicTest", "--tag", "TagD", "--key-prefix", "hot"], None),
        (["--topic", "TopicTest", "--born-host", "10.1.2.3"], 0),
        (["--topic", "TopicTest", "--size", "..5"], None),
        (["--topic", "TopicTest", "--json-path", "$.a=1"], 0),
        (["--topic", "TopicTest", "--since", "2026-11-21T06:45:06Z", "--until", "2026-11-21T06:45:07Z"], None),
        (["--topic", "TopicTest", "--timezone", "UTC", "--since", "2030"], 0),
    ],
)
def test_messages_are_chosen_as_search_chooses_them(g1_store, broker, typed, count) -> None:
    found = rocketlens("search", g1_store, *typed, "--json")
    outcome = rocketlens("replay", g1_store, *typed, "--to", broker.address, "--format", "json")
    assert sum(each["messages"] for each in outcome.messages) == len(found.messages)
    assert count in (None, len(found.messages))
    assert outcome.code == (0 if found.messages else 1)


def test_texts_that_name_nothing_are_said_one_by_one(g1_store, broker, tmp_path) -> None:
    (tmp_path / "ids").write_text("hotkey\nnowhere\n")
    for typed in (["hotkey", "nowhere"], ["-f", tmp_path / "ids"]):
        outcome = rocketlens("replay", g1_store, *typed, "--to", broker.address, "--json")
        assert (outcome.code, outcome.messages[0]["messages"]) == (1, 40)
        assert "no message: nowhere\n" in outcome.errors


def test_what_a_group_failed_to_consume_goes_where_it_is_asked_for(g1_store, broker) -> None:
    typed = ("replay", g1_store, "--topic", "%RETRY%CG_FAIL", "--to", broker.address, "--json")
    outcome = rocketlens(*typed)
    assert (outcome.code, outcome.messages) == (1, [])
    assert "need one of --to-origin, --to-retry, --to-topic: there is no default" in outcome.errors
    assert rocketlens(*typed, "--to-retry").messages[0]["topic"] == "%RETRY%CG_FAIL"
    assert rocketlens(*typed, "--to-topic", "Other").messages[0]["topic"] == "Other"
    assert "topic TopicBatch does not exist there" in rocketlens(*typed, "--to-origin").errors
    assert rocketlens(*typed, "--to-origin", "--to-retry").code == 2


def test_an_edited_export_is_sent(g1_store, broker, tmp_path) -> None:
    rocketlens("export", g1_store, "--topic", "TopicTest", "--format", "jsonl", "--no-unpack", "--out", tmp_path / "o")
    (part,) = (tmp_path / "o").glob("*.jsonl")
    written = part.read_text().splitlines()
    lines = [json.loads(line) | {"body": f"edited {number}"} for number, line in enumerate(written)]
    (tmp_path / "edited.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    outcome = rocketlens("replay", tmp_path / "edited.jsonl", "--topic", "TopicTest", "--to", broker.address, "--go")
    assert outcome.code == 0
    assert sorted(each.body for each in broker.log) == sorted(f"edited {number}".encode() for number in range(52))
    refused = rocketlens("replay", tmp_path / "edited.jsonl", "--key", "k", "--to", broker.address)
    assert (refused.code, "chosen by --topic alone" in refused.errors) == (2, True)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ([], "say what is sent"),
        (["hotkey", "--key", "k"], "TEXTs name messages"),
        (["hotkey", "--verify"], "--verify needs --go"),
        (["--topic", "T", "--since", "2027", "--until", "2026"], "is after"),
        (["--topic", "T", "--rate", "0"], "--rate"),
    ],
)
def test_what_contradicts_itself_is_refused(g1_store, broker, typed, said) -> None:
    outcome = rocketlens("replay", g1_store, *typed, "--to", broker.address)
    assert (outcome.code, said in outcome.errors) == (2, True)


def test_a_target_that_is_none_is_named(g1_store, server, broker, tmp_path) -> None:
    outcome = rocketlens("replay", g1_store, "hotkey", "--to", "127.0.0.1:1", "--tls-no-verify")
    assert (outcome.code, "cannot connect to 127.0.0.1:1" in outcome.errors) == (3, True)
    # One name server is enough.
    for topic in ("TopicTest", "TopicDelay"):
        typed = ("replay", g1_store, "--topic", topic, "--to", f"127.0.0.1:1;{broker.address}")
        broker.topics.pop("TopicDelay", None)
        outcome = rocketlens(*typed)
        assert (outcome.code, "create it" in outcome.errors) == ((0, False) if topic == "TopicTest" else (1, True))
    (tmp_path / "keys").write_text("accessKey: a\n")
    outcome = rocketlens("replay", g1_store, "hotkey", "--to", "127.0.0.1:1", "--to-credentials", tmp_path / "keys")
    assert (outcome.code, "--credentials" in outcome.errors) == (2, True)
    # A RocketLens server is a name server, and takes nothing.
    outcome = rocketlens("replay", g1_store, "hotkey", "--to", server, "--go")
    assert outcome.code == 1
    assert "cannot be written there" in outcome.errors or "read-only" in outcome.errors


def test_messages_get_new_ids_in_the_cluster_that_they_are_from(g1_store, server) -> None:
    typed = ("--topic", "TopicTest", "--limit", "5", "--go", "--order", "none", "--in-flight", "2", "--batch", "2")
    broker = TakingBroker(dict(TOPICS))
    with broker.serving():
        assert rocketlens("replay", g1_store, *typed, "--to", broker.address, "--keep-ids").code == 0
        assert rocketlens("replay", g1_store, *typed, "--to", broker.address, "--new-ids", "--account", "b").code == 0
        kept, new = ([each.properties["UNIQ_KEY"] for each in broker.log[start : start + 5]] for start in (0, 5))
        assert len({*kept, *new}) == 10
        # A server that the target's name server names is the source's own cluster.
        broker.log.clear()
        broker.also = str(server)
        typed = ("replay", server, *typed, "--stop-after", "3", "--to", broker.address, "--account", "c")
        assert rocketlens(*typed).code == 0
        assert not {each.properties["UNIQ_KEY"] for each in broker.log} & set(kept)


def test_a_store_is_opened_as_every_command_opens_it(g1_store, broker, tmp_path) -> None:
    (tmp_path / "masks").write_text("properties.nothing\n")
    typed = ("--topic", "TopicTest", "--to", broker.address, "--json")
    layout = ("--commit-log", g1_store / "commitlog", "--index-slots", 97, "--index-entries", 150)
    more = ("--state-dir", tmp_path / "state", "--mask-file", tmp_path / "masks")
    wanted = rocketlens("replay", g1_store, *typed).output
    assert rocketlens("replay", "--store", g1_store, *layout, *more, *typed).output == wanted
    assert rocketlens("replay", f"file://{g1_store}", "--storage-options", "{}", *typed).output == wanted
    assert rocketlens("replay", g1_store, "--tier", tmp_path / "none", *typed).code == 3


def test_what_a_mask_hides_is_counted_and_not_sent(g1_store, broker) -> None:
    typed = ("replay", g1_store, "--topic", "TopicTest", "--to", broker.address, "--mask", "properties.region")
    outcome = rocketlens(*typed, "--go", "--json")
    assert outcome.code == 1
    assert "not sent: 40 messages: a part of it is masked" in outcome.errors
    assert len(broker.log) == 12
