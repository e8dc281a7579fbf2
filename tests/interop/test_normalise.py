"""The comparison of mqadmin's output: what may differ may, and nothing else."""

import re

import pytest

from interop.mqadmin_cases import COMMANDS, Case, read_cases
from interop.normalise import MAY_DIFFER, Cell, cells, is_unordered, may_differ, normalise

CASES = read_cases()
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)

OTHER_VALUES = {
    "#Addr": "10.0.0.7:20911",
    "#Version": "V4_9_8",
    "#InTPS(LOAD)": "12.50(3,7ms)",
    "#OutTPS(LOAD)": "0.75(1,2ms|3,4ms)",
    "#Timer(Progress)": "1-2(0.5w, 1.0, 2.0)",
    "#PCWait(ms)": "17",
    "#Hour": "123.45",
    "#SPACE": "0.7731",
    "0": '"[::1]:10911"',
    '"perm"': "4",
    "#BrokerAddrs": "{0=10.0.0.7:20911}",
    "#Perm": "4",
    "... more": "5",
}


def replaced(case: Case, cell: Cell, text: str) -> str:
    return case.printed[: cell.start] + text + case.printed[cell.end :]


def changed(text: str) -> str:
    """Another text of the same kind: one digit or letter is another."""
    position = re.search(r"[0-9A-Za-z]", text[::-1])
    index = len(text) - 1 - position.start() if position else len(text) - 1
    other = str((int(text[index]) + 1) % 10) if text[index].isdigit() and text[index].isascii() else "x"
    return text[:index] + ("y" if other == text[index] else other) + text[index + 1 :]


@each_case
def test_cells_are_all_that_is_printed(case: Case) -> None:
    rest = list(case.printed)
    for cell in cells(case.printed):
        assert case.printed[cell.start : cell.end] == cell.text
        rest[cell.start : cell.end] = " " * len(cell.text)
    assert not re.search(r"[^\s,:.]|more", "".join(rest).replace("... ", "").replace(" more", ""))


@each_case
def test_the_recorded_output_equals_itself(case: Case) -> None:
    assert normalise(case.arguments, case.printed) == normalise(case.arguments, case.printed)


@each_case
def test_a_change_in_any_column_that_may_not_differ_fails(case: Case) -> None:
    recorded = normalise(case.arguments, case.printed)
    for cell in cells(case.printed):
        if not may_differ(case.arguments, cell):
            for text in (changed(cell.text), cell.text + "x", ""):
                assert normalise(case.arguments, replaced(case, cell, text)) != recorded, (cell, text)


@each_case
def test_a_column_that_may_differ_may_hold_any_value_of_its_form_but_no_other_text(case: Case) -> None:
    recorded = normalise(case.arguments, case.printed)
    for cell in cells(case.printed):
        if may_differ(case.arguments, cell):
            assert normalise(case.arguments, replaced(case, cell, OTHER_VALUES[cell.column])) == recorded, cell
            assert normalise(case.arguments, replaced(case, cell, cell.text + "?")) != recorded, cell
            assert normalise(case.arguments, replaced(case, cell, "")) != recorded, cell


def test_every_column_that_may_differ_occurs_in_a_recorded_output() -> None:
    used = {(case.command, cell.column) for case in CASES for cell in cells(case.printed)}
    for command, column in MAY_DIFFER:
        assert any(column == name and command in ("*", other) for other, name in used), (command, column)


@each_case
def test_a_line_less_or_a_line_more_fails(case: Case) -> None:
    recorded = normalise(case.arguments, case.printed)
    lines = case.printed.splitlines(keepends=True)
    for number, line in enumerate(lines):
        if line.strip():
            assert normalise(case.arguments, "".join(lines[:number] + lines[number + 1 :])) != recorded, line
            assert normalise(case.arguments, "".join([*lines[:number], line, *lines[number:]])) != recorded, line


@each_case
def test_only_rows_that_come_from_a_java_set_may_change_places(case: Case) -> None:
    recorded = normalise(case.arguments, case.printed)
    lines = [line for line in case.printed.splitlines(keepends=True) if line.strip()]
    for number in range(len(lines) - 1):
        first, second = lines[number : number + 2]
        swapped = "".join([*lines[:number], second, first, *lines[number + 2 :]])
        if first != second and normalise(case.arguments, swapped) == recorded:
            rows = [next(cell for cell in cells(swapped) if cell.row == row) for row in (number, number + 1)]
            assert all(is_unordered(case.arguments, cell) for cell in rows), first


def test_every_command_has_a_recorded_case() -> None:
    assert {case.command for case in CASES} == COMMANDS
