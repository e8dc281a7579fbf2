"""Decide a SQL92 expression for one message, as :mod:`storage.filter.sql92` does, without making a text of anything.

An expression comes as a choice (:mod:`storage.filter.choice`): the names of its properties, and steps that work on a
stack of outcomes, two bits each, in one number. Where the outcome hangs on what only Python's conversions know (digits
of other scripts, numbers that a double holds only when rounded with care), the answer is ASK.

| step | numbers | what it does |
|---|---|---|
| CONSTANT | outcome | lays an outcome on the stack |
| COMPARE | name, relation, number, bits, absent | compares a property as an integer of so many bits |
| COMPARE_DOUBLE | name, relation, bits of the double, −, absent | compares it as a double |
| EQUAL | name, position, length, negated | compares it with a text |
| IS_MISSING | name, negated | |
| SEARCH | name, position, length, negated, where | looks for a text in it: anywhere, at its start, at its end |
| TRUTH | name | unknown where it is missing, else false |
| NOT | | turns the uppermost outcome round |
| AND, OR | step | joins the uppermost to the one below, and goes to a step when that is decided |
| IS_UNKNOWN | negated | asks whether the uppermost is unknown |
"""

import numpy as np
from numba import njit

from storage.filter import choice as layout
from storage.filter.sql92 import pull_program as program
from storage.kernels.memory import equal_bytes, load_native_i64, load_u8
from storage.kernels.properties import find_end, find_separator, parse_integer
from storage.kernels.record import NAME_SEPARATOR

FALSE, TRUE, UNKNOWN = program.FALSE, program.TRUE, program.UNKNOWN
ERROR = 3
"""It cannot be evaluated: the message is not delivered."""
ASK = 4

CONSTANT, COMPARE, COMPARE_DOUBLE, EQUAL = program.CONSTANT, program.COMPARE, program.COMPARE_DOUBLE, program.EQUAL
IS_MISSING, SEARCH, TRUTH, NOT = program.IS_MISSING, program.SEARCH, program.TRUTH, program.NOT
AND, OR, IS_UNKNOWN = program.AND, program.OR, program.IS_UNKNOWN
BELOW, SAME, ABOVE = program.BELOW, program.SAME, program.ABOVE
AT_START, AT_END = program.SEARCHES["STARTSWITH"], program.SEARCHES["ENDSWITH"]

VALUES = layout.MOST_NAMES + 1
"""Native i64 of scratch memory: where the value of each name lies, and a parsed number."""

MISSING = -1
EXACT_DIGITS = 15
"""Digits of an integer that any double holds; it and a power of ten as small divide with one rounding."""

POWERS = np.array([10.0**exponent for exponent in range(EXACT_DIGITS + 1)])
MINUS, PLUS, POINT, ZERO, NINE = ord("-"), ord("+"), ord("."), ord("0"), ord("9")


@njit(cache=True, nogil=True)
def number_of(choice: int, index: int) -> int:
    """One number of a choice."""
    return load_native_i64(choice + 8 * index)


@njit(cache=True, nogil=True)
def find_name(choice: int, name: int, length: int) -> int:
    """Which of the expression's names stands at an address, or −1."""
    texts = number_of(choice, layout.TEXTS)
    for place in range(number_of(choice, layout.COUNT)):
        at = layout.FIRST + layout.NAME_LENGTH * place
        if number_of(choice, at + 1) == length and equal_bytes(texts + number_of(choice, at), name, length):
            return place
    return -1


@njit(cache=True, nogil=True)
def find_values(choice: int, block: int, length: int, values: np.ndarray) -> None:
    """Where the values of the expression's names lie in a property block: position times 65536 plus length, or MISSING.

    By the rules of :func:`storage.kernels.properties.find_properties`. A record lies around the block.
    """
    for place in range(number_of(choice, layout.COUNT)):
        values[place] = MISSING
    segment = 0
    while segment < length:
        separator = find_separator(block, segment, length)
        if separator < length and load_u8(block + separator) == NAME_SEPARATOR:
            end = find_end(block, separator + 1, length)
            if end - separator > 1 and separator > segment:
                name = find_name(choice, block + segment, separator - segment)
                if name >= 0:
                    values[name] = ((separator + 1) << 16) | (end - separator - 1)
            segment = end + 1
        else:
            segment = separator + 1


@njit(cache=True, nogil=True)
def is_ascii(text: int, length: int) -> bool:
    """Whether all bytes of a text are below 0x80."""
    for position in range(length):  # noqa: SIM110 — compiled: a generator would not be
        if load_u8(text + position) >= 0x80:
            return False
    return True


@njit(cache=True, nogil=True)
def parse_decimal(text: int, length: int, parsed: np.ndarray) -> int:
    """Put digits with a point or without as an integer into ``parsed``; digits behind the point, or −1.

    Only forms that need no care: a minus sign perhaps, no exponent, no more digits than a double holds, no −0.
    """
    is_negative = length > 0 and load_u8(text) == MINUS
    number, digits, behind, is_behind = 0, 0, 0, False
    for position in range(1 if is_negative else 0, length):
        byte = load_u8(text + position)
        if byte == POINT and not is_behind:
            is_behind = True
            continue
        if byte < ZERO or byte > NINE:
            return -1
        number = number * 10 + byte - ZERO
        digits += 1
        behind += 1 if is_behind else 0
        if digits > EXACT_DIGITS:
            return -1
    if digits == 0 or (is_negative and number == 0):
        return -1
    parsed[0] = -number if is_negative else number
    return behind


@njit(cache=True, nogil=True)
def outcome_of(is_true: bool, is_negated: int) -> int:
    """TRUE or FALSE."""
    return TRUE if is_true != (is_negated != 0) else FALSE


@njit(cache=True, nogil=True)
def compare_integer(step: int, text: int, length: int, parsed: np.ndarray) -> int:
    """A property beside an integer."""
    if not parse_integer(text, length, load_native_i64(step + 32), parsed.ctypes.data):
        return ERROR if is_ascii(text, length) else ASK
    value, number = parsed[0], load_native_i64(step + 24)
    stands = BELOW if value < number else SAME if value == number else ABOVE
    return TRUE if load_native_i64(step + 16) & stands else FALSE


@njit(cache=True, nogil=True)
def compare_double(step: int, text: int, length: int, parsed: np.ndarray) -> int:
    """A property beside a double."""
    behind = parse_decimal(text, length, parsed)
    if behind < 0:
        return ASK
    value = np.float64(parsed[0]) / POWERS[behind]
    number = np.int64(load_native_i64(step + 24)).view(np.float64)
    stands = BELOW if value < number else SAME if value == number else ABOVE
    return TRUE if load_native_i64(step + 16) & stands else FALSE


@njit(cache=True, nogil=True)
def contains(text: int, length: int, wanted: int, wanted_length: int, where: int) -> bool:
    """Whether some bytes stand in others, at their start or end if that is asked."""
    first, last = 0, length - wanted_length
    if where == AT_START:
        last = min(last, 0)
    elif where == AT_END:
        first = max(last, 0)
    for position in range(first, last + 1):  # noqa: SIM110 — compiled: a generator would not be
        if equal_bytes(text + position, wanted, wanted_length):
            return True
    return False


@njit(cache=True, nogil=True)
def decide_step(choice: int, step: int, operation: int, block: int, values: np.ndarray) -> int:
    """The outcome of a step that looks at a property."""
    value = values[load_native_i64(step + 8)]
    if operation == IS_MISSING:
        return outcome_of(value == MISSING, load_native_i64(step + 16))
    if value == MISSING:
        if operation in (COMPARE, COMPARE_DOUBLE):
            return load_native_i64(step + 40)
        return FALSE if operation == SEARCH else UNKNOWN
    text, length = block + (value >> 16), value & 0xFFFF
    if operation == COMPARE:
        return compare_integer(step, text, length, values[layout.MOST_NAMES :])
    if operation == COMPARE_DOUBLE:
        return compare_double(step, text, length, values[layout.MOST_NAMES :])
    if operation == TRUTH:
        return FALSE
    wanted, wanted_length = number_of(choice, layout.TEXTS) + load_native_i64(step + 16), load_native_i64(step + 24)
    if operation == EQUAL:
        is_equal = length == wanted_length and equal_bytes(text, wanted, length)
        return outcome_of(is_equal, load_native_i64(step + 32))
    where = load_native_i64(step + 40)
    return outcome_of(contains(text, length, wanted, wanted_length, where), load_native_i64(step + 32))


@njit("int64(int64, int64, int64, int64[::1])", cache=True, nogil=True)
def decide(choice: int, block: int, length: int, values: np.ndarray) -> int:
    """The outcome of an expression for the message with a property block: TRUE delivers it; or ASK.

    ``values`` is scratch memory of VALUES numbers.
    """
    find_values(choice, block, length, values)
    steps = choice + 8 * (layout.FIRST + layout.NAME_LENGTH * number_of(choice, layout.COUNT))
    count = number_of(choice, layout.STEP_COUNT)
    stack, at = 0, 0
    while at < count:
        step = steps + 8 * layout.STEP_LENGTH * at
        operation = load_native_i64(step)
        at += 1
        if operation in (AND, OR):
            outcome, below = stack & 3, (stack >> 2) & 3
            deciding = FALSE if operation == AND else TRUE
            if outcome == deciding:
                below = outcome
                at = load_native_i64(step + 8)
            elif outcome == UNKNOWN:
                below = UNKNOWN
            stack = ((stack >> 4) << 2) | below
        elif operation == NOT:
            outcome = stack & 3
            stack ^= outcome ^ (UNKNOWN if outcome == UNKNOWN else 1 - outcome)
        elif operation == IS_UNKNOWN:
            stack = ((stack >> 2) << 2) | outcome_of((stack & 3) == UNKNOWN, load_native_i64(step + 8))
        elif operation == CONSTANT:
            stack = (stack << 2) | load_native_i64(step + 8)
        else:
            outcome = decide_step(choice, step, operation, block, values)
            if outcome >= ERROR:
                return outcome
            stack = (stack << 2) | outcome
    return stack & 3
