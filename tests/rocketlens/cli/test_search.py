"""`rocketlens search`: what it lists, and what a consumer with a filter gets and why not the rest."""

import contextlib
import io
import json
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import search_oracle
from broker_harness import service_of, serving_in_a_thread
from command_line import rocketlens
from examples import examples
from oracles import read_log
from rocketlens import open as opened
from rocketlens.cli.search_progress import SearchProgress
from storage.search.criteria import Criteria, SearchPlace
from storage.search.progress import ProgressReport
from storage.store.message_store import MessageStore
from store_writer import START_TIMESTAMP, StoreWriter


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("search") / "store"
    writer = StoreWriter(root)
    for number in range(20):
        body = json.dumps({"order": {"id": number, "name": f"n{number}"}}).encode() + b" " * number
        named = {"keys": f"order-{number}", "tags": "AB"[number % 2], "properties": {"n": str(number)}}
        writer.append("TU"[number % 2], body, **named, born_host=(f"10.0.0.{number}", 80))
    writer.close()
    return root


def offsets(root, *arguments) -> list[int]:
    return [message["physicalOffset"] for message in rocketlens("search", root, *arguments, "--json").messages]


@pytest.mark.parametrize(
    ("arguments", "criteria"),
    [
        ((), Criteria()),
        (("--topic", "T"), Criteria(topic="T")),
        (("--contains", "order-1", "--in", "properties"), Criteria(contains=b"order-1", place=SearchPlace.PROPERTIES)),
        (("--regex", r"n\d\d"), Criteria(regex=r"n\d\d")),
        (("--json-path", "$.order.id=7"), Criteria(json_path="$.order.id=7")),
        (("--json-path", "$.order.name=n7"), Criteria(json_path="$.order.name=n7")),
        (("--where", "n BETWEEN 3 AND 5"), Criteria(where="n BETWEEN 3 AND 5")),
        (("--tag", "A", "--topic", "T"), Criteria(tag="A", topic="T")),
        (("--key", "order-2", "--topic", "T"), Criteria(key="order-2", topic="T")),
        (("--key-prefix", "order-1"), Criteria(key_prefix="order-1")),
        (("--born-host", "10.0.0.4/30"), Criteria(born_host="10.0.0.4/30")),
        (("--size", "40..45"), Criteria(minimum_size=40, maximum_size=45)),
        (
            ("--since", START_TIMESTAMP + 3, "--until", START_TIMESTAMP + 5),
            Criteria(begin_timestamp=START_TIMESTAMP + 3, end_timestamp=START_TIMESTAMP + 5),
        ),
    ],
    ids=str,
)
def test_each_option_finds_what_a_loop_finds(root, arguments, criteria) -> None:
    expected = [offset for offset, _ in search_oracle.hits(read_log(root / "commitlog"), criteria)]
    assert expected
    assert offsets(root, *arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--regex", "("), "is no regular expression"),
        (("--where", "a >"), "expected a property or a value"),
        (("--cursor", "xyz"), "cursor 'xyz' is not valid"),
        (("--topic", "\udcff"), "topic: '\\udcff' is no text, its bytes are no UTF-8"),
        (("--since", "5", "--until", "4"), "--since 5 is after --until 4"),
    ],
)
def test_what_cannot_be_is_wrong_usage(root, arguments, reason) -> None:
    outcome = rocketlens("search", root, *arguments)
    assert outcome.code == 2
    assert reason in outcome.errors


def test_a_stopped_search_is_code_130_and_tells_where_to_go_on(root, monkeypatch) -> None:
    asked = []

    @contextlib.contextmanager
    def after_a_while():
        yield lambda: len(asked) > 6 or bool(asked.append(None))

    whole = offsets(root)
    monkeypatch.setattr("rocketlens.cli.search.stopping", after_a_while)
    outcome = rocketlens("search", root, "--json")
    assert outcome.code == 130
    cursor = outcome.errors.partition("--cursor ")[2].split()[0]
    monkeypatch.undo()
    first = [message["physicalOffset"] for message in outcome.messages]
    assert 0 < len(first) < len(whole)
    assert first + offsets(root, "--cursor", cursor) == whole


def test_messages_are_written_aside_of_the_line_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with SearchProgress() as progress:
        progress.show(ProgressReport(10**9, 2 * 10**9, 3, 1.0))
        with progress.aside():
            terminal.write("a message\n")
        progress.show(ProgressReport(2 * 10**9, 2 * 10**9, 3, 2.0))
    assert "searched 1 of 2 GB (50 %), 3 found, 1 GB/s, 0:00:01 left" in terminal.getvalue()
    assert "a message\n" in terminal.getvalue()


def test_a_whole_log_is_read_if_that_is_asked_for(g1_store) -> None:
    asked = ("search", g1_store, "--topic", "TopicTest", "--key", "hotkey", "--json")
    by_index, by_log = rocketlens(*asked), rocketlens(*asked, "--exhaustive")
    assert by_log.output == by_index.output
    assert len(by_log.messages) == 40
    assert "40 records were found by the index" in by_index.errors
    assert "by the index" not in by_log.errors


def run(store, *arguments, topic="TopicTest"):
    return rocketlens("search", store, topic, *arguments)


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    writer = StoreWriter(tmp_path_factory.mktemp("odd") / "store")
    for tag, number in (("Aa", "7"), ("BB", "5.5"), (None, "3"), ("Aa ", None)):
        writer.append("T", b"x", tags=tag, properties={} if number is None else {"a": number})
    writer.append("T", b"elsewhere", queue_id=1, tags="Aa", properties={"a": "9"})
    writer.close()
    return writer.root


def test_each_message_is_explained_by_its_tag_and_by_its_properties(odd) -> None:
    outcome = run(odd, "--tag", "Aa || C", "--explain", "--json", topic="T")
    assert [(message["delivered"], message["reason"]) for message in outcome.messages] == [
        (True, "the tag 'Aa' is one of 'Aa', 'C'"),
        (False, "the tag 'BB' is none of 'Aa', 'C'"),
        (False, "the message has no tag, wanted: 'Aa', 'C'"),
        (False, "the tag 'Aa ' is none of 'Aa', 'C'"),
        (True, "the tag 'Aa' is one of 'Aa', 'C'"),
    ]
    assert outcome.code == 0
    outcome = run(odd, "--where", "a > 5 AND TAGS = 'Aa'", "--explain", "--json", topic="T")
    reasons = [message["reason"] for message in outcome.messages]
    assert [message["delivered"] for message in outcome.messages] == [True, False, False, False, True]
    assert reasons[0] == "the expression is true: a > 5 is true (a is '7'); TAGS = 'Aa' is true (TAGS is 'Aa')"
    assert "a > 5 is not to be evaluated: " in reasons[1]
    assert "(a is '5.5')" in reasons[1]
    assert "TAGS = 'Aa' is unknown (TAGS is missing)" in reasons[2]
    assert "a > 5 is unknown (a is missing)" in reasons[3]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--explain",), "--explain needs a TOPIC, and --tag or --where"),
        (("--tag", "||"), "no tag between the separators"),
        (("--explain", "--tag", "TagA", "--mask", "tags"), "tags"),
    ],
)
def test_wrong_usage_is_exit_code_2(arguments, words, g1_store) -> None:
    outcome = run(g1_store, *arguments)
    assert outcome.code == 2
    assert words in outcome.errors


@settings(max_examples=examples(2), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sets(st.sampled_from(["a", "us", "region", "TAGS"]), min_size=1))
def test_where_nothing_passes_properties_that_no_message_has_are_named(odd, names) -> None:
    """By all commands that take an expression, of a directory and of a server, and by no other word than these."""
    where = " AND ".join(f"{name} = 'nowhere'" for name in sorted(names))
    missing = sorted(names - {"a", "TAGS"})
    said = f"no message of topic T has {'property' if len(missing) == 1 else 'properties'} {', '.join(missing)}\n"
    with serving_in_a_thread(service_of(MessageStore.open(odd))) as server:
        outcomes = [run(odd, *more, "--where", where, topic="T") for more in ((), ("--explain",))]
        for name, source in (("search", server), ("tail", odd), ("tail", server)):
            outcomes.append(rocketlens(name, source, "T", "--where", where))
    for outcome in outcomes:
        assert outcome.code == 1
        assert (said in outcome.errors) == bool(missing)
        assert ("has propert" in outcome.errors) == bool(missing)
    reason = opened(odd).pull("T", 0, 0, sql=where).reason
    assert ("none of the first 4 messages there has propert" in reason) == bool(missing)
