"""`rocketlens search --tag`, `--where` and `--explain`: what a consumer with a filter gets, and why not the rest."""

from pathlib import Path

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker_harness import service_of, serving_in_a_thread
from command_line import Outcome, rocketlens
from examples import examples
from golden_store import G1
from rocketlens import absent_properties
from rocketlens import open as opened
from storage.store.message_store import MessageStore
from store_writer import StoreWriter


def run(store: Path, *arguments: object, topic: str = "TopicTest") -> Outcome:
    return rocketlens("search", store, topic, *arguments)


def consumed(name: str, topic: str = "TopicTest") -> set[str]:
    """The ids of the messages of a topic that a recorded push consumer received."""
    rows = [line.split("\t") for line in (G1 / name).read_text().splitlines()]
    return {row[4] for row in rows if row[0] == "MSG" and row[1] == topic}


def ids(outcome: Outcome) -> list[str]:
    return [message["messageId"] for message in outcome.messages]


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tags and properties that filters stumble over, in queue 0 of topic T."""
    writer = StoreWriter(tmp_path_factory.mktemp("odd") / "store")
    for tag, number in (("Aa", "7"), ("BB", "5.5"), (None, "3"), ("Aa ", None)):
        writer.append("T", b"x", tags=tag, properties={} if number is None else {"a": number})
    writer.append("T", b"elsewhere", queue_id=1, tags="Aa", properties={"a": "9"})
    writer.close()
    return writer.root


@pytest.mark.parametrize(
    ("arguments", "file"),
    [
        (("--tag", "TagA || Aa"), "consumed-tag.tsv"),
        (("--where", "a > 10 AND a <= 30 AND region = 'hz'"), "consumed-sql.tsv"),
    ],
)
def test_it_lists_what_recorded_consumers_received(arguments: tuple[str, ...], file: str, g1_store: Path) -> None:
    outcome = run(g1_store, *arguments, "--json")
    assert outcome.code == 0
    assert sorted(ids(outcome)) == sorted(consumed(file))
    explained = run(g1_store, *arguments, "--explain", "--json").messages
    assert len(explained) == 52
    assert {each["messageId"] for each in explained if each["delivered"]} == consumed(file)


def test_how_much_would_be_delivered_stands_on_stderr(g1_store: Path) -> None:
    outcome = run(g1_store, "--tag", "TagD", "--explain", "--json")
    assert outcome.errors.endswith("rocketlens: 40 of 52 messages would be delivered\n")
    assert len(outcome.messages) == 52


def test_other_conditions_narrow_what_is_explained(g1_store: Path) -> None:
    outcome = run(g1_store, "--tag", "TagD", "--explain", "--json", "--contains", "hot 1", "--limit", "3")
    assert [(message["body"], message["delivered"]) for message in outcome.messages] == [
        ("hot 1", True),
        ("hot 10", True),
        ("hot 11", True),
    ]


def test_a_tag_of_equal_hash_is_not_delivered_since_clients_compare_the_tag(odd: Path) -> None:
    outcome = run(odd, "--tag", "Aa", "--json", topic="T")
    assert [(message["queueId"], message["tags"]) for message in outcome.messages] == [(0, "Aa"), (1, "Aa")]


def test_nothing_delivered_is_exit_code_1(odd: Path) -> None:
    outcome = run(odd, "--tag", "Never", topic="T")
    assert (outcome.code, outcome.output) == (1, b"")
    outcome = run(odd, "--tag", "Never", "--explain", "--json", topic="T")
    assert (outcome.code, len(outcome.messages)) == (1, 5)
    assert "0 of 5 messages would be delivered" in outcome.errors


def test_each_message_is_explained_by_its_tag(odd: Path) -> None:
    outcome = run(odd, "--tag", "Aa || C", "--explain", "--json", topic="T")
    assert [(message["delivered"], message["reason"]) for message in outcome.messages] == [
        (True, "the tag 'Aa' is one of 'Aa', 'C'"),
        (False, "the tag 'BB' is none of 'Aa', 'C'"),
        (False, "the message has no tag, wanted: 'Aa', 'C'"),
        (False, "the tag 'Aa ' is none of 'Aa', 'C'"),
        (True, "the tag 'Aa' is one of 'Aa', 'C'"),
    ]
    assert outcome.code == 0


def test_each_message_is_explained_by_its_properties(odd: Path) -> None:
    outcome = run(odd, "--where", "a > 5 AND TAGS = 'Aa'", "--explain", "--json", topic="T")
    reasons = [message["reason"] for message in outcome.messages]
    assert [message["delivered"] for message in outcome.messages] == [True, False, False, False, True]
    assert reasons[0] == "the expression is true: a > 5 is true (a is '7'); TAGS = 'Aa' is true (TAGS is 'Aa')"
    assert "a > 5 is not to be evaluated: " in reasons[1]
    assert "(a is '5.5')" in reasons[1]
    assert "TAGS = 'Aa' is unknown (TAGS is missing)" in reasons[2]
    assert "a > 5 is unknown (a is missing)" in reasons[3]


def test_a_single_condition_is_told_once(odd: Path) -> None:
    outcome = run(odd, "--where", "a IS NULL", "--explain", "--json", topic="T")
    assert outcome.messages[0]["reason"] == "a IS NULL is false (a is '7')"
    assert outcome.messages[3]["reason"] == "a IS NULL is true (a is missing)"


def test_explanations_come_as_a_table_and_as_msgpack_too(odd: Path) -> None:
    text = run(odd, "--tag", "BB", "--explain", topic="T").text
    assert text.splitlines()[0].split() == ["MESSAGE", "ID", "QUEUE", "OFFSET", "TAG", "DELIVERED", "WHY"]
    assert "the tag 'BB' is one of 'BB'" in text
    unpacker = msgpack.Unpacker()
    unpacker.feed(run(odd, "--tag", "BB", "--explain", "--format", "msgpack", "--limit", "2", topic="T").output)
    assert [row["delivered"] for row in unpacker] == [False, True]


def test_an_expression_that_does_not_compile_is_drawn_with_the_place(g1_store: Path) -> None:
    outcome = run(g1_store, "--where", "a > 5 AND")
    assert outcome.code == 2
    lines = outcome.errors.splitlines()
    assert lines[1].strip() == "a > 5 AND"
    assert lines[2].strip().strip("^") == ""


def test_what_a_broker_does_not_read_of_an_expression_is_said(g1_store: Path) -> None:
    outcome = run(g1_store, "--where", "a > 5 anything goes", "--json")
    assert outcome.code == 0
    assert "text behind the expression is ignored, as by brokers" in outcome.errors
    assert "anything goes" in outcome.errors


def test_the_earlier_name_of_the_command_answers_alike(g1_store: Path) -> None:
    for options in (("--tag", "TagA || Aa"), ("--where", "a > 10", "--explain")):
        earlier = rocketlens("filter", g1_store, "--topic", "TopicTest", *options, "--json")
        now = run(g1_store, *options, "--json")
        assert (earlier.code, earlier.output) == (now.code, now.output)
    assert rocketlens("search", g1_store, "--tag", "TagA", "--explain").code == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--explain",), "--explain needs a TOPIC, and --tag or --where"),
        (("--explain", "--tag", "A", "--where", "a = 1"), "--explain needs a TOPIC, and --tag or --where"),
        (("--explain", "--tag", "||"), "no tag between the separators"),
        (("--explain", "--where", "a >"), "found the end"),
        (("--tag", "||"), "no tag between the separators"),
        (("--where", ""), "found the end"),
        (("--explain", "--tag", "TagA", "--mask", "tags"), "tags"),
        (("--explain", "--where", "a > 5", "--mask", "properties.a"), "properties.a"),
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: tuple[str, ...], words: str, g1_store: Path) -> None:
    outcome = run(g1_store, *arguments)
    assert outcome.code == 2
    assert words in outcome.errors


def test_a_topic_that_is_nowhere_is_exit_code_1_and_a_store_that_is_none_3(g1_store: Path, tmp_path: Path) -> None:
    outcome = run(g1_store, "--tag", "A", topic="NoSuchTopic")
    assert (outcome.code, outcome.errors) == (1, "rocketlens: there is no topic NoSuchTopic\n")
    assert "did you mean TopicTest" in run(g1_store, "--tag", "A", topic="TopicTets").errors
    assert run(tmp_path, "--tag", "A").code == 3


# --- properties that are nowhere --------------------------------------------------------------------------------------


@settings(max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sets(st.sampled_from(["a", "us", "region", "TAGS"]), min_size=1))
def test_where_nothing_passes_properties_that_no_message_has_are_named(odd: Path, names: set[str]) -> None:
    """By all commands that take an expression, of a directory and of a server, and by no other word than these."""
    where = " AND ".join(f"{name} = 'nowhere'" for name in sorted(names))
    missing = sorted(names - {"a", "TAGS"})
    said = f"no message of topic T has {'property' if len(missing) == 1 else 'properties'} {', '.join(missing)}\n"
    with serving_in_a_thread(service_of(MessageStore.open(odd))) as server:
        outcomes = [
            run(odd, "--where", where, topic="T"),
            run(odd, "--explain", "--where", where, topic="T"),
            rocketlens("search", server, "T", "--where", where),
            rocketlens("tail", odd, "T", "--where", where),
            rocketlens("tail", server, "T", "--where", where),
        ]
    for outcome in outcomes:
        assert outcome.code == 1
        assert (said in outcome.errors) == bool(missing)
        assert ("has propert" in outcome.errors) == bool(missing)
    reason = opened(odd).pull("T", 0, 0, sql=where).reason
    assert ("none of the first 4 messages there has propert" in reason) == bool(missing)


def test_of_a_long_topic_the_newest_messages_are_looked_at_and_that_is_said(
    odd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(absent_properties, "MOST_LOOKED_AT", 4)
    monkeypatch.setattr(absent_properties, "LEAST_OF_QUEUE", 2)
    assert (
        "none of 3 messages of topic T that were looked at has property us"
        in run(odd, "--where", "us = 'x'", topic="T").errors
    )
