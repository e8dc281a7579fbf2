"""The kernel decides an expression as `storage.filter.sql92` does, and as the official filter did, or asks."""

import json
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filter_vectors import vectors
from golden_store import GOLDEN
from kernel_memory import Bytes
from protocol.errors import FilterEvaluationError, FilterSyntaxError
from protocol.properties import encode_properties, parse_properties
from storage.filter.choice import DEEPEST, MOST_NAMES, MOST_STEPS, Choice
from storage.filter.sql92 import Expression, parse
from storage.filter.sql92.pull_program import choice_of_expression
from storage.kernels import expression as kernel
from strategies import property_blocks

RECORDED: list[dict[str, Any]] = json.loads((GOLDEN / "filter" / "sql92-vectors.json").read_text())["vectors"]
PROPERTIES: list[dict[str, str]] = [properties for (properties,) in vectors("properties")]
BLOCKS = [encode_properties(properties) for properties in PROPERTIES]
LETTERS = {True: "T", False: "F", None: "N"}
OUTCOMES = {kernel.TRUE: "T", kernel.FALSE: "F", kernel.UNKNOWN: "N", kernel.ERROR: "E", kernel.ASK: "?"}
AROUND = bytes(range(1, 3)) * 20
"""What a record has around its properties: here it reads like some."""


def program(text: str) -> tuple[Expression, Choice | None]:
    expression = parse(text)
    choice = choice_of_expression(expression.root, expression.program)
    return expression, choice if choice.address else None


def decided(choice: Choice, block: bytes) -> str:
    """The kernel's outcome as a letter; it writes to its own scratch memory alone."""
    held = Bytes(AROUND + block + AROUND)
    values = np.full(kernel.VALUES + 2, 4711, np.int64)
    outcome = kernel.decide(choice.address, held.address + len(AROUND), len(block), values[: kernel.VALUES])
    assert values[kernel.VALUES :].tolist() == [4711] * 2
    return OUTCOMES[outcome]


def letter(expression: Expression, properties: dict[str, str]) -> str:
    try:
        return LETTERS[expression.evaluate(properties)]
    except FilterEvaluationError:
        return "E"


def decide(text: str, **properties: str) -> str:
    choice = program(text)[1]
    assert choice is not None
    return decided(choice, encode_properties(properties))


# ---------------------------------------------------------------------- the same outcomes


def test_recorded_outcomes_are_the_kernels_where_it_has_one() -> None:
    told = {"true": "T", "false": "F", "null": "N", None: "E"}
    assert len(RECORDED) > 2_000
    count = 0
    for vector in RECORDED:
        if vector["stage"] == "compile":
            continue
        choice, block = program(vector["expr"])[1], encode_properties(vector["props"])
        if choice is not None and parse_properties(block) == vector["props"]:  # no block holds an empty value
            outcome = decided(choice, block)
            assert outcome in (told[vector["value"]], "?"), vector["id"]
            count += outcome != "?"
    assert count > 1_000


def test_random_expressions_come_out_as_the_official_filter_said() -> None:
    programs, asked, compared = 0, 0, 0
    for text, expected in vectors("sql"):
        if expected is None:
            continue
        choice = program(text)[1]
        if choice is not None:
            outcomes = "".join(decided(choice, block) for block in BLOCKS)
            assert all(ours in (theirs, "?") for ours, theirs in zip(outcomes, expected, strict=True)), text
            programs, asked, compared = programs + 1, asked + outcomes.count("?"), compared + len(outcomes)
    assert programs > 500
    assert asked < compared // 4


NAMES = ("a", "b", "c_1", "$", "averylongnameofaproperty")
NUMBERS = (
    *("0", "5", "-7", "2147483647", "2147483648", "-2147483648", "9223372036854775807"),
    *("5.5", "0.1", "-2.50", "1e3"),
)
TEXTS = ("'x'", "'5'", "'hz'", "''", "'价值'", "'it''s'", "'a'", "'\ufffd'")
VALUES = (
    *("0", "5", "05", "+5", "-7", "5.5", "5.", ".5", ".", "-0", "-0.0", "0.1", "1e3", "NaN", "٥", "-", "+", " 5", "5 "),
    *("2147483648", "9223372036854775808", "123456789012345", "1234567890123456"),
    *("x", "hz", "价值", "it's", "true", "aa"),
)


def condition(generator: random.Random, depth: int) -> str:
    """A condition, most of them of the forms that the kernel knows."""
    choice = generator.choice
    name = choice(NAMES)
    kind = generator.random()
    if depth and kind < 0.5:
        parts = [condition(generator, depth - 1) for _ in range(generator.randint(2, 4))]
        joined = f" {choice(('AND', 'OR'))} ".join(parts)
        return f"({joined})" if generator.random() < 0.9 else f"NOT ({joined})"
    negated = choice(("", "", "NOT "))
    return choice(
        (
            f"{name} {choice(('=', '<>', '<', '<=', '>', '>='))} {choice(NUMBERS)}",
            f"{choice(NUMBERS)} {choice(('=', '<>', '<', '<=', '>', '>='))} {name}",
            f"{name} {choice(('=', '<>'))} {choice(TEXTS)}",
            f"{name} {negated}BETWEEN {choice(NUMBERS[:4])} AND {choice(NUMBERS[4:5])}",
            f"{name} {negated}IN ({', '.join(generator.sample(TEXTS, 3))})",
            f"{name} IS {negated}NULL",
            f"({name} > 5) IS {negated}NULL",
            f"{name} {negated}{choice(('CONTAINS', 'STARTSWITH', 'ENDSWITH'))} {choice(TEXTS)}",
            f"{negated}{name}",
            choice(("TRUE", "FALSE", "NULL")),
            f"{name} = {choice((*NAMES, 'TRUE'))}",
        )
    )


@pytest.mark.parametrize("seed", range(4))
def test_made_up_expressions_come_out_alike(seed: int) -> None:
    generator = random.Random(seed)
    outcomes: list[str] = []
    for _ in range(1_500):
        try:
            expression, choice = program(condition(generator, 2))
        except FilterSyntaxError:
            continue
        if choice is None:
            continue
        for _ in range(5):
            properties = {name: generator.choice(VALUES) for name in generator.sample(NAMES, generator.randint(0, 5))}
            outcome = decided(choice, encode_properties(properties))
            assert outcome in (letter(expression, properties), "?"), (expression.text, properties)
            outcomes.append(outcome)
    assert all(outcomes.count(each) > 50 for each in "TFNE?")


@given(
    property_blocks, st.sampled_from(["a IS NULL", "a = 'b'", "a CONTAINS 'b' OR b IS NOT NULL", "a > 5", "a >= 0.5"])
)
def test_any_block_of_properties_is_read_by_the_brokers_rules(block: bytes, text: str) -> None:
    expression, choice = program(text)
    assert choice is not None
    assert decided(choice, block) in (letter(expression, parse_properties(block)), "?")


# ---------------------------------------------------------------------- what is asked, and what is no program


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("a > 5", "٦", "?"),
        ("a > 5", "6\u00a0", "?"),
        ("a > 5", "6 ", "E"),
        ("a > 5", "2147483648", "E"),
        ("a > 2147483648", "2147483649", "T"),
        ("a > 5.0", "5.1", "T"),
        ("a = 0.1", "0.1", "T"),
        ("a = 0.1", ".1", "T"),
        ("a = 0.3", "0.300000000000000", "?"),
        ("a < 0.5", "-0", "?"),
        ("a < 0.5", "0", "T"),
        ("a > 5.0", "1e3", "?"),
        ("a > 5.0", "x", "?"),
    ],
)
def test_a_number_is_decided_where_that_is_certain(text: str, value: str, expected: str) -> None:
    assert decide(text, a=value) == expected


def test_and_and_or_end_where_they_are_decided() -> None:
    """A part that cannot be evaluated is not reached behind one that decides."""
    assert decide("a = 'x' AND b > 5", a="y", b="no number") == "F"
    assert decide("a = 'x' AND b > 5", a="x", b="no number") == "E"
    assert decide("a = 'x' OR b > 5", a="x", b="no number") == "T"
    assert decide("c > 5 AND b > 5", b="no number") == "E", "what is unknown decides nothing"
    assert decide("(a = 'x' OR a = 'y') AND (b > 5 OR b < 3) AND NOT (c = '1')", a="y", b="2") == "N"


@pytest.mark.parametrize(
    "text",
    [
        "a = b",
        "a > b",
        "a = TRUE",
        "'x' = a",
        "(a > 5) = TRUE",
        "-a IS NULL",
        "a = '\ufffd'",
        "a CONTAINS ''",
        " AND ".join(f"p{number} = 'x'" for number in range(MOST_NAMES + 1)),
        " AND ".join(["a = 'x'"] * MOST_STEPS),
        "(" * DEEPEST + "a = 'x'" + " AND a = 'x')" * DEEPEST,
        "a IN (" + ", ".join(f"'{number}'" for number in range(MOST_STEPS)) + ")",
    ],
    ids=range(12),
)
def test_what_the_kernel_has_no_steps_for_is_no_program(text: str) -> None:
    assert program(text)[1] is None


def test_as_much_as_fits_is_a_program() -> None:
    names = [f"p{number}" for number in range(MOST_NAMES)]
    assert decide(" AND ".join(f"{name} = 'x'" for name in names), **dict.fromkeys(names, "x")) == "T"
    depth = DEEPEST - 1
    nested = "(a = 'x' AND " * depth + "a = 'x'" + ")" * depth
    assert decide(nested, a="x") == "T"
    assert decide(nested, a="y") == "F"
    assert decide("a IN (" + ", ".join(f"'{number}'" for number in range(100)) + ")", a="99") == "T"
