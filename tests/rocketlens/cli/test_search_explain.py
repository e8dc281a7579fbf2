"""`rocketlens search --tag`, `--where` and `--explain`: what a consumer with a filter gets, and why not the rest."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker_harness import service_of, serving_in_a_thread
from command_line import Outcome, rocketlens
from examples import examples
from rocketlens import open as opened
from storage.store.message_store import MessageStore
from store_writer import StoreWriter


def run(store: Path, *arguments: object, topic: str = "TopicTest") -> Outcome:
    return rocketlens("search", store, topic, *arguments)


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tags and properties that filters stumble over, in queue 0 of topic T."""
    writer = StoreWriter(tmp_path_factory.mktemp("odd") / "store")
    for tag, number in (("Aa", "7"), ("BB", "5.5"), (None, "3"), ("Aa ", None)):
        writer.append("T", b"x", tags=tag, properties={} if number is None else {"a": number})
    writer.append("T", b"elsewhere", queue_id=1, tags="Aa", properties={"a": "9"})
    writer.close()
    return writer.root


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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--explain",), "--explain needs a TOPIC, and --tag or --where"),
        (("--explain", "--tag", "A", "--where", "a = 1"), "--explain needs a TOPIC, and --tag or --where"),
        (("--explain", "--tag", "||"), "no tag between the separators"),
        (("--tag", "||"), "no tag between the separators"),
        (("--explain", "--tag", "TagA", "--mask", "tags"), "tags"),
        (("--explain", "--where", "a > 5", "--mask", "properties.a"), "properties.a"),
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: tuple[str, ...], words: str, g1_store: Path) -> None:
    outcome = run(g1_store, *arguments)
    assert outcome.code == 2
    assert words in outcome.errors


# --- properties that are nowhere --------------------------------------------------------------------------------------


@settings(max_examples=examples(5), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
