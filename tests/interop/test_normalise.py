"""The comparison of mqadmin's output: what may differ may, and nothing else."""

import re

from interop.mqadmin_cases import Case, read_cases, read_refused_cases
from interop.normalise import MAY_DIFFER, Cell, cells, is_left_out, may_differ, normalise

CASES = read_cases()


def compared_cells(case: Case) -> list[Cell]:
    """The cells of the rows that are compared."""
    found = cells(case.printed)
    firsts = {cell.row: cell for cell in reversed(found)}
    return [cell for cell in found if not is_left_out(case.arguments, firsts[cell.row])]


def changed(case: Case, cell: Cell, text: str) -> str:
    return case.printed[: cell.start] + text + case.printed[cell.end :]


def other(text: str) -> str:
    """Another text of the same kind: its last digit or letter is another."""
    position = max((found.start() for found in re.finditer(r"[0-9A-Za-z]", text)), default=len(text) - 1)
    letter = str((int(text[position]) + 1) % 10) if text[position] in "0123456789" else "xy"[text[position] == "x"]
    return text[:position] + letter + text[position + 1 :]


def test_a_change_of_what_may_not_differ_is_noticed_in_each_column_of_each_case() -> None:
    columns = 0
    for case in CASES:
        recorded = normalise(case.arguments, case.printed)
        fixed = {cell.column: cell for cell in compared_cells(case) if not may_differ(case.arguments, cell)}
        for cell in fixed.values():
            assert normalise(case.arguments, changed(case, cell, other(cell.text))) != recorded, (case.name, cell)
            columns += 1
    assert columns > 300


def test_what_may_differ_is_compared_by_its_form() -> None:
    used = set()
    for case in CASES:
        recorded = normalise(case.arguments, case.printed)
        free = {cell.column: cell for cell in compared_cells(case) if may_differ(case.arguments, cell)}
        for cell in free.values():
            used.add(cell.column)
            for wrong in (f"{cell.text}?", ""):
                assert normalise(case.arguments, changed(case, cell, wrong)) != recorded, (case.name, cell)
    assert {column for _, column in MAY_DIFFER} <= used
    (case,) = [case for case in CASES if case.command == "topicRoute" and case.name == "topicRoute"]
    elsewhere = re.sub(r"127\.0\.0\.1:\d+", "10.0.0.7:20911", case.printed)
    assert elsewhere != case.printed
    assert normalise(case.arguments, elsewhere) == normalise(case.arguments, case.printed)


def test_a_line_less_or_a_line_more_is_noticed() -> None:
    for case in CASES:
        recorded = normalise(case.arguments, case.printed)
        for number in sorted({cell.row for cell in compared_cells(case)})[::5]:
            lines = case.printed.splitlines(keepends=True)
            assert normalise(case.arguments, "".join(lines[:number] + lines[number + 1 :])) != recorded, case.name
            assert normalise(case.arguments, "".join([*lines[:number], lines[number], *lines[number:]])) != recorded


def test_figures_that_one_side_alone_has_make_no_difference() -> None:
    (case,) = [case for case in CASES if case.command == "brokerStatus"]
    more = case.printed + f"{'getTransferedTps':32}: 0.0\n{'rocketlensBitmapEvaluations':32}: 1\n"
    assert normalise(case.arguments, more) == normalise(case.arguments, case.printed)
    assert normalise(case.arguments, f"{more}{'commitLogNewOffset':32}: 1\n") != normalise(case.arguments, case.printed)


def test_all_cases_but_those_that_write_have_a_recorded_output() -> None:
    assert set(read_refused_cases()) == {"cloneGroupOffset", "resetOffsetByTime", "sendMessage"}
    assert len(CASES) == 47
