"""Programs over blocks of properties as they lie in records, beside the oracle and what the official filter said."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles
import sql92_oracle
from filter_vectors import vectors
from kernel_memory import Bytes
from protocol.errors import FilterEvaluationError
from protocol.properties import encode_properties
from storage.filter.sql92 import Expression, parse
from storage.kernels import sql92 as kernel
from strategies import property_blocks

LETTERS = {True: "T", False: "F", None: "N"}
OUTCOMES = {kernel.TRUE: "T", kernel.FALSE: "F", kernel.UNKNOWN: "N", kernel.FAILED: "E"}
AROUND = bytes(range(1, 3)) * 40
"""What a record has around its properties: here it reads like some."""


def decided(expression: Expression, *blocks: bytes) -> str:
    """The kernel's outcomes as letters, for blocks within records and alone."""
    held = Bytes(AROUND + AROUND.join(blocks))
    lengths = np.array([len(block) for block in blocks], np.int64)
    positions = np.cumsum(lengths + len(AROUND)) - lengths
    outcomes = np.empty(len(blocks), np.uint8)
    kernel.decide_records(expression.program, held.region, positions, lengths, outcomes)
    letters = "".join(OUTCOMES[outcome] for outcome in outcomes.tolist())
    assert letters == "".join(OUTCOMES[expression.program.decide(block)] for block in blocks)
    return letters


def letter(expression: Expression, block: bytes) -> str:
    """The oracle's outcome."""
    properties = oracles.parse_properties(oracles.decode_java(block))
    try:
        return LETTERS[sql92_oracle.evaluate(expression.root, properties)]
    except FilterEvaluationError:
        return "E"


# ---------------------------------------------------------------------- the same outcomes


@pytest.mark.parametrize("text", ["\ud800", "a\udcffü", "\ud800\ufffd\ud801", "\udcff "])
@pytest.mark.parametrize("number", ["5", "5L", "5.5"])
def test_what_cannot_be_read_is_named_as_it_was_written(text: str, number: str) -> None:
    """Half a character comes with JSON's escapes, and with bytes on a command line that are no UTF-8."""
    expression = parse(f"'{text}' = {number}")
    with pytest.raises(FilterEvaluationError) as wanted:
        sql92_oracle.evaluate(expression.root, {})
    with pytest.raises(FilterEvaluationError) as raised:
        expression.evaluate({})
    assert str(raised.value) == str(wanted.value)


def test_random_expressions_come_out_as_the_official_filter_said() -> None:
    blocks = [encode_properties(properties) for (properties,) in vectors("properties")]
    for text, expected in vectors("sql"):
        if expected is not None:
            assert decided(parse(text), *blocks) == expected, text


@given(
    property_blocks,
    st.sampled_from(
        ["a IS NULL", "a = 'b'", "a CONTAINS 'b' OR b IS NOT NULL", "a > 5", "a >= 0.5", "KEYS = TAGS", "a = '\ufffd'"]
    ),
)
def test_any_block_of_properties_is_read_by_the_brokers_rules(block: bytes, text: str) -> None:
    expression = parse(text)
    assert decided(expression, block) == letter(expression, block)


# ---------------------------------------------------------------------- much of everything


def test_names_are_told_apart_however_many_there_are() -> None:
    names = [f"{'p' * (number % 90)}{number}" for number in range(400)]
    values = dict(zip(names, map(str, range(400)), strict=True))
    expression = parse(" AND ".join(f"{name} = '{value}'" for name, value in values.items()))
    assert decided(expression, encode_properties(values), encode_properties(values | {names[7]: "x"})) == "TF"


def test_many_texts_are_looked_up() -> None:
    texts = [f"{number:o}" for number in range(5_000)]
    expression = parse("a IN (" + ", ".join(f"'{text}'" for text in reversed(texts)) + ")")
    asked = [*texts[:300], "8", "77777777", "00"]
    assert decided(expression, *(encode_properties({"a": text}) for text in asked)) == "T" * 300 + "FFF"


def test_a_search_in_a_hostile_text_takes_no_square_of_its_length() -> None:
    expression = parse(f"a CONTAINS '{'x' * 16_000}y'")
    assert decided(expression, b"a\x01" + b"x" * 32_700) == "F"


# ---------------------------------------------------------------------- what is refused


def finished(*steps: Callable[[kernel.Program], object]) -> kernel.Program:
    program = kernel.Program(["a"])
    for step in steps:
        step(program)
    program.finish()
    return program


def test_a_program_that_does_not_come_to_one_outcome_is_refused() -> None:
    for steps in (
        [],
        [lambda program: program.truth("a")] * 2,
        [lambda program: program.negate()],
        [lambda program: program.truth("a"), lambda program: program.join(False)],
        [lambda program: program.compare(kernel.SAME, kernel.PROPERTY, "a", kernel.OUTCOME, None)],
        [lambda program: program.compare(kernel.SAME, 9, "a", kernel.TEXT, "x")],
        [lambda program: program.constant(kernel.FAILED)],
        [lambda program: program.search(kernel.ANYWHERE, kernel.INT32, 5, "x", False)],  # type: ignore[arg-type]
        [lambda program: program.truth("a"), lambda program: program.land(0)],
        [lambda program: program.land(-1)],
    ):
        with pytest.raises(ValueError, match=r"outcome|operand|texts|step"):
            finished(*steps)
    with pytest.raises(KeyError):
        finished(lambda program: program.truth("b"))


def test_a_join_leads_nowhere_but_to_where_as_many_outcomes_wait() -> None:
    program = kernel.Program(["a"])
    program.truth("a")
    program.truth("a")
    join = program.join(False)
    program.truth("a")
    with pytest.raises(ValueError, match="does not lead to here"):
        program.land(join)


def test_nothing_is_added_to_a_finished_program_and_no_other_decides() -> None:
    program = finished(lambda program: program.truth("a"))
    with pytest.raises(ValueError, match="no step"):
        program.negate()
    with pytest.raises(ValueError, match="not finished"):
        kernel.Program(["a"]).decide(b"")
