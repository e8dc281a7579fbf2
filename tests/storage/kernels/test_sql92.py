"""Programs over blocks of properties, and texts as numbers, beside oracles, the official filter and the JDK."""

import math
import struct
import unicodedata

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
from sql92_oracle import double_order, to_double_order
from storage.filter.sql92 import parse
from storage.kernels import sql92 as kernel
from storage.kernels.sql92 import double_of, integer_of
from strategies import property_blocks

OUTCOMES = {kernel.TRUE: "T", kernel.FALSE: "F", kernel.UNKNOWN: "N", kernel.FAILED: "E"}
AROUND = bytes(range(1, 3)) * 40
"""What a record has around its properties: here it reads like some."""


def decided(expression, *blocks):
    held = Bytes(AROUND + AROUND.join(blocks))
    lengths = np.array([len(block) for block in blocks], np.int64)
    positions = np.cumsum(lengths + len(AROUND)) - lengths
    outcomes = np.empty(len(blocks), np.uint8)
    kernel.decide_records(expression.program, held.region, positions, lengths, outcomes)
    letters = "".join(OUTCOMES[outcome] for outcome in outcomes.tolist())
    assert letters == "".join(OUTCOMES[expression.program.decide(block)] for block in blocks)
    return letters


def letter(expression, block):
    properties = oracles.parse_properties(oracles.decode_java(block))
    try:
        return {True: "T", False: "F", None: "N"}[sql92_oracle.evaluate(expression.root, properties)]
    except FilterEvaluationError:
        return "E"


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


def test_names_and_texts_of_any_number_and_length_are_found() -> None:
    # A search in a hostile text takes no square of its length.
    expression = parse(f"a CONTAINS '{'x' * 16_000}y'")
    assert decided(expression, b"a\x01" + b"x" * 32_700) == "F"
    # Names are told apart however many there are.
    names = [f"{'p' * (number % 90)}{number}" for number in range(400)]
    values = dict(zip(names, map(str, range(400)), strict=True))
    expression = parse(" AND ".join(f"{name} = '{value}'" for name, value in values.items()))
    assert decided(expression, encode_properties(values), encode_properties(values | {names[7]: "x"})) == "TF"
    # Many texts are looked up.
    texts = [f"{number:o}" for number in range(5_000)]
    expression = parse("a IN (" + ", ".join(f"'{text}'" for text in reversed(texts)) + ")")
    asked = [*texts[:300], "8", "77777777", "00"]
    assert decided(expression, *(encode_properties({"a": text}) for text in asked)) == "T" * 300 + "FFF"


def finished(*steps):
    program = kernel.Program(["a"])
    for step in steps:
        step(program)
    program.finish()
    return program


def test_a_program_comes_to_one_outcome_or_is_refused() -> None:
    # A program that does not come to one outcome is refused.
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
    # A join leads nowhere but to where as many outcomes wait.
    program = kernel.Program(["a"])
    program.truth("a")
    program.truth("a")
    join = program.join(False)
    program.truth("a")
    with pytest.raises(ValueError, match="does not lead to here"):
        program.land(join)
    # Nothing is added to a finished program and no other decides.
    program = finished(lambda program: program.truth("a"))
    with pytest.raises(ValueError, match="no step"):
        program.negate()
    with pytest.raises(ValueError, match="not finished"):
        kernel.Program(["a"]).decide(b"")


Column = int | None


def to_int32(text: str) -> int:
    return integer_of(text, 32)


def to_int64(text: str) -> int:
    return integer_of(text, 64)


NUMBERS: list[tuple[str, Column, Column, Column]] = [tuple(each) for each in vectors("number")]


def read(convert, text):
    try:
        return convert(text)
    except FilterEvaluationError:
        return None


def said(convert, text):
    try:
        return repr(convert(text))
    except FilterEvaluationError as error:
        return str(error)


def test_numbers_are_those_of_java() -> None:
    # Numbers are what the jdk reads doubles to the last bit.
    for column in (1, 2, 3):
        assert 50 < sum(each[column] is not None for each in NUMBERS) < len(NUMBERS) - 50
    for text, int32, int64, bits in NUMBERS:
        assert (read(to_int32, text), read(to_int64, text)) == (int32, int64), text
        number = read(double_of, text)
        assert (None if number is None else struct.unpack(">q", struct.pack(">d", number))[0]) == bits, text
    # A hostile text is refused at once.
    for text in ("1" * 32_000 + "x", "1." + "1" * 32_000 + "x", "0x" + "1" * 32_000, "1e" + "1" * 32_000 + "x"):
        assert read(double_of, text) is None
        assert read(to_int64, text) is None
    # The order of doubles is total as in java.
    ascending = [-math.inf, -1.5, -5e-324, -0.0, 0.0, 5e-324, 1.0, 1.7976931348623157e308, math.inf, math.nan]
    texts = ["-Infinity", "-1.5", "-5e-324", "-0.0", "0.0", "5e-324", "1.0", "1.7976931348623157e308", "Infinity"]
    for number, text in enumerate([*texts, "NaN"]):
        assert [is_below(text, other) for other in [*texts, "-NaN"]] == [number < other for other in range(10)]
        assert to_double_order(text) == double_order(ascending[number])
    # Doubles of any length and exponent.
    for text, expected in [
        ("0." + "0" * 400 + "1e401", 1.0), ("1" + "0" * 2000 + "e-2000", 1.0), ("0." + "0" * 2000 + "1", 0.0),
        ("1e99999999999999999999", math.inf), ("0e99999999999999999999", 0.0), ("-0x1p99999999999999999999", -math.inf),
        ("0x1p-99999999999999999999", 0.0), ("0x0p99999999999999999999", 0.0), ("0x" + "0" * 400 + ".1p4", 1.0),
    ]:  # fmt: skip
        assert double_of(text) == expected


def is_below(first: str, second: str) -> bool | None:
    return parse("a < b").evaluate({"a": first, "b": second})


@given(
    st.text() | st.text("0123456789+-.eEpPxXfFdDaN ٥𝟎\x00") | st.from_regex(r"[+-]?0x[0-9a-f]*\.?[0-9a-f]*p-?[0-9]+")
)
def test_any_text_is_the_number_that_the_oracle_reads_or_the_same_error(text: str) -> None:
    for convert, oracle in (
        (to_int32, sql92_oracle.to_int32),
        (to_int64, sql92_oracle.to_int64),
        (double_of, sql92_oracle.to_double),
    ):
        assert said(convert, text) == said(oracle, text)


@pytest.mark.parametrize("convert", [to_int32, to_int64])
def test_integers_may_have_any_number_of_leading_zeros(convert) -> None:
    for zero, five in (("0", "5"), ("٠", "٥"), ("０", "５")):
        assert convert("-" + zero * 30_000 + five) == -5
        assert convert("+" + zero * 30_000) == 0
    with pytest.raises(FilterEvaluationError, match="is beyond a"):
        convert("9" * 30_000)


@given(st.text("0123456789", min_size=1, max_size=40), st.text("0123456789", max_size=40), st.integers(-400, 400))
def test_decimal_numbers_are_rounded_as_python_rounds_them(whole: str, part: str, exponent: int) -> None:
    text = f"{whole}.{part}e{exponent}"
    assert double_of(text) == float(text)
    assert double_of(f"-{text}") == -float(text)


def test_digits_of_all_scripts_are_read_that_unicode_knows() -> None:
    for character in map(chr, range(0x80, 0x10000)):
        digit = unicodedata.decimal(character, None)
        if "\ud800" <= character <= "\udfff" or (digit is None and character > "\u0fff" and ord(character) % 16):
            continue
        assert read(to_int32, f"-1{character}") == (None if digit is None else -10 - digit)


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
