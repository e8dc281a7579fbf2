"""Small stores of faults that people met (`tests/golden/cases`), asked by the command, in Python and by the page's API.

What is true of each is in its README: it comes from RocketMQ's own code and the records written, not from RocketLens.
"""

from datetime import UTC, datetime
from pathlib import Path

import pytest

import rocketlens
from command_line import rocketlens as command
from golden_store import CASES, unpack
from web_questions import ApiOf


@pytest.fixture
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The store of the case that a test names."""
    return unpack("store", tmp_path, archives=CASES / request.param)


def in_case(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", [name], indirect=True)


FIRST = datetime(2024, 5, 31, 8, 29, 57, tzinfo=UTC)
"""When the first of six messages was stored; the others came a second later each."""


@pytest.mark.parametrize(
    ("since", "until", "count"),
    [
        ("20240531083000", None, 3),
        ("20240531083000123", None, 2),
        (None, "20240531082958", 2),
        ("202405310830", None, 3),
        ("20240531", None, 6),
        ("202406", None, 0),
        ("2024053108", "2024053109", 6),
        ("1717144200", None, 3),
    ],
)
@in_case("B8-digits-as-times")
def test_digits_are_the_times_that_they_say(case: Path, since: str | None, until: str | None, count: int) -> None:
    times = [each for name, text in (("--since", since), ("--until", until)) if text for each in (name, text)]
    outcome = command("search", case, *times, "--timezone", "UTC", "--json")
    assert len(outcome.messages) == count
    answer = ApiOf(case).ask("/search", begin=since, end=until, timezone="UTC", where="a IS NULL OR a = 1")
    assert len(answer.json["messages"]) == count
    with rocketlens.open(case) as store:
        # Seconds since 1970 have no zone.
        begin, end = (text if text in (None, "1717144200") else f"{text} UTC" for text in (since, until))
        assert len(list(store.search(begin=begin, end=end))) == count


@in_case("B8-digits-as-times")
def test_numbers_that_are_no_times_are_refused_by_every_surface(case: Path) -> None:
    for number in ("20241331083000", "1717144200000000"):
        assert command("search", case, "--since", number).code == 2
        assert ApiOf(case).ask("/search", begin=number, contains="a").status == 400
        with rocketlens.open(case) as store:
            for value in (number, int(number)):
                with pytest.raises(rocketlens.ConfigError, match="neither milliseconds nor a time"):
                    list(store.search(begin=value))


@in_case("B8-digits-as-times")
def test_times_the_wrong_way_round_are_named_as_they_were_typed(case: Path) -> None:
    wrong = ("--since", "2024-06-01 08:30", "--until", "20240531")
    typed = "--since 2024-06-01 08:30 is after --until 20240531"
    assert typed in command("search", case, *wrong).errors
    assert typed in command("find", case, "a", *wrong).errors
    assert typed in command("export", case, *wrong, "--format", "csv", "--out", case.parent / "out").errors
    due = command("pending", case, "--due-after", "2024-06-01", "--due-before", "20240531")
    assert "--due-after 2024-06-01 is after --due-before 20240531" in due.errors
    answer = ApiOf(case).ask("/search", begin="2024-06-01 08:30", end="20240531", contains="a")
    assert answer.error["message"] == "the end, 20240531, is before the begin, 2024-06-01 08:30"
    with (
        rocketlens.open(case) as store,
        pytest.raises(rocketlens.ConfigError, match=r"begin 2024-06 is after end 2024$"),
    ):
        list(store.search(begin="2024-06", end="2024"))


@pytest.mark.parametrize(
    ("path", "found"),
    [("$.id=3", 1), ("$.y=4711", 1), ("$.id=1", 2), ("$.id=77", 1), ("$.id=2", 1), ("$.id=9007199254740993", 1)],
)
@in_case("C7-json-numbers")
def test_numbers_beyond_a_double_and_a_mark_hide_no_body_from_a_path(case: Path, path: str, found: int) -> None:
    assert len(command("search", case, "--json-path", path, "--json").messages) == found
    assert len(ApiOf(case).ask("/search", jsonPath=path).json["messages"]) == found
    with rocketlens.open(case) as store:
        assert len(list(store.search(json_path=path))) == found


@in_case("C7-json-numbers")
def test_bodies_with_such_numbers_are_shown_as_json(case: Path) -> None:
    api = ApiOf(case)
    found = command("search", case, "--json").messages
    shown = [api.ask("/message", offset=each["physicalOffset"]).json for each in found]
    assert len(shown) == 8
    assert {each["bodyKind"] for each in shown if "NaN" not in each["body"]} == {"json"}
