"""Filters are made once, kept while they are used, counted in bytes, and made off the event loop where that is long."""

import gc

import pytest

from broker.service.consumers import kept_filters
from broker.service.consumers.kept_filters import Failed, KeptFilters
from broker.service.long_work import UNITS_A_TURN, Parsing, begin_on_loop
from broker.service.registry_budget import BudgetSpent, RegistryBudget, Room
from protocol.errors import BadCommand, FilterSyntaxError
from storage.files.waiting import Unfinished, finish
from store_queries import at_once

BOOK = " OR ".join(f"a = {number}" for number in range(600))


@pytest.fixture
def room() -> Room:
    return RegistryBudget(4 << 20).room("filters", 1)


@pytest.fixture
def filters(room: Room) -> KeptFilters:
    return KeptFilters(room)


def expression(number: int, terms: int = 20) -> str:
    return " AND ".join(f"p{number} > {term}" for term in range(terms))


def test_the_filter_of_a_subscription_is_made_once(filters: KeptFilters) -> None:
    assert filters.make("a > 1", "SQL92") is filters.make("a > 1", "SQL92")
    assert filters.make("A", None) is filters.make("A", None)
    assert filters.make("a > 1", "SQL92") is not filters.make("a > 1", None)


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("a >", "SQL92", "a >"),
        (None, "SQL92", "the expression is empty"),
        ("", "SQL92", "the expression is empty"),
        ("a > 1", "sql92", "TAG or SQL92"),
        ("x", "FOO", "TAG or SQL92"),
        ("||", "TAG", "no tag"),
        ("a" * (1 << 18) + "a", "SQL92", "262145 characters, more than 262144"),
    ],
)
def test_what_does_not_compile_is_an_error_that_says_where(
    text: str | None, kind: str, words: str, filters: KeptFilters
) -> None:
    for _ in range(2):
        with pytest.raises(FilterSyntaxError) as caught:
            filters.make(text, kind)
        assert words in str(caught.value)
        assert len(str(caught.value)) < 500


def test_what_does_not_compile_is_compiled_once(filters: KeptFilters, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    compile_filter = kept_filters.compile_filter
    monkeypatch.setattr(kept_filters, "compile_filter", lambda *key: made.append(key) or compile_filter(*key))
    for _ in range(5):
        with pytest.raises(FilterSyntaxError):
            filters.make("a >", "SQL92")
    assert made == [("a >", "SQL92")]


def test_filters_that_nobody_uses_give_way_and_take_no_more_than_their_part(room: Room, filters: KeptFilters) -> None:
    for number in range(60):
        filters.make(expression(number), "SQL92")
    gc.collect()
    assert room.used <= room.limit // kept_filters.KEPT_PART


def test_a_filter_that_is_used_is_counted_and_shared_until_nobody_uses_it(room: Room) -> None:
    filters = KeptFilters(room)
    used = [filters.make(expression(number), "SQL92") for number in range(40)]
    for number in range(40, 60):
        filters.make(expression(number), "SQL92")
    assert filters.make(expression(0), "SQL92") is used[0]
    before = room.used
    assert before > 40 * 20 * 3 * kept_filters.PART_BYTES
    used.clear()
    gc.collect()
    assert room.used < before


def test_where_all_filters_are_used_a_further_one_is_refused_and_those_go_on() -> None:
    room = RegistryBudget(1 << 19).room("filters", 1)
    filters = KeptFilters(room)
    used = [filters.make(expression(number), "SQL92") for number in range(6)]
    with pytest.raises(BudgetSpent, match="filters of all clients"):
        used.extend(filters.make(expression(number), "SQL92") for number in range(100))
    assert filters.make(expression(0), "SQL92") is used[0]
    assert room.used <= room.limit
    made = finish(filters.make_all([(expression(0), "SQL92"), (expression(200), "SQL92"), ("a >", "SQL92")]))
    assert made[expression(0), "SQL92"] is used[0]
    assert isinstance(made[expression(200), "SQL92"], BudgetSpent)
    assert isinstance(made["a >", "SQL92"], Failed)


def test_one_request_may_bring_so_many_characters_anew(filters: KeptFilters) -> None:
    half = [(f"'{number}' = '{'x' * 1000}'", "SQL92") for number in range(200)]
    finish(filters.make_all(half))
    finish(filters.make_all([*half, *((text.replace("x", "y"), kind) for text, kind in half)]))
    with pytest.raises(BadCommand, match=r"subString: .* characters of new expressions, more than 262144"):
        finish(filters.make_all((f"'{number}' = '{'z' * 1000}'", "SQL92") for number in range(300)))


def parsing_of(step: object) -> Parsing:
    assert isinstance(step, Unfinished)
    assert isinstance(step.wait, Parsing)
    return step.wait


def test_on_the_event_loop_only_what_is_short_is_made_and_the_rest_says_what_would_make_it(
    filters: KeptFilters, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not isinstance(begin_on_loop(filters.make_lookup("a > 1", "SQL92")), Unfinished)
    step = begin_on_loop(filters.make_lookup(BOOK, "SQL92"))
    wait = parsing_of(step)
    assert (wait.is_part, wait.units > UNITS_A_TURN) == (True, True)
    wait.warm()
    assert at_once(filters.make_lookup(BOOK, "SQL92")).matches_commit_log(b"a\x01100\x02")
    with monkeypatch.context() as patched:
        patched.setattr(kept_filters, "compile_filter", None)
        assert isinstance(step, Unfinished)
        assert step.go_on() is at_once(filters.make_lookup(BOOK, "SQL92")), "it was made already"
    many = begin_on_loop(filters.make_all((expression(number), "SQL92") for number in range(30)))
    assert not parsing_of(many).is_part
    parsing_of(begin_on_loop(filters.make_lookup("||".join(map(str, range(5000))), None)))
