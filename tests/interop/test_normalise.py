"""The comparison of mqadmin's output: what may differ may, and nothing else."""

import re

import pytest

from interop.mqadmin_cases import Case, read_cases, read_refused_cases
from interop.normalise import COMPARED, MAY_DIFFER, Cell, cells, is_left_out, is_unordered, may_differ, normalise

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
    "EndTransactionThreadPoolQueueCapacity": "7",
    "ackThreadPoolQueueCapacity": "7",
    "bootTimestamp": "1895243493026",
    "brokerVersionDesc": "V4_9_8",
    "commitLogDirCapacity": "Total : 1.0 TiB, Free : 3.5 GiB.",
    "commitLogDiskRatio": "0.99",
    "consumeQueueDiskRatio": "0.99",
    "getFoundTps": "1.0 2.5 0.0",
    "getMessageEntireTimeMax": "7",
    "getMissTps": "1.0 2.5 0.0",
    "getTotalTps": "1.0 2.5 0.0",
    "getTransferredTps": "1.0 2.5 0.0",
    "litePullThreadPoolQueueCapacity": "7",
    "msgGetTotalTodayNow": "7",
    "msgPutTotalTodayNow": "7",
    "pullThreadPoolQueueCapacity": "7",
    "putMessageAverageSize": "7.5",
    "putMessageDistributeTime": "null",
    "putMessageEntireTimeMax": "7",
    "putMessageSizeTotal": "7",
    "putMessageTimesTotal": "7",
    "putTps": "1.0 2.5 0.0",
    "queryThreadPoolQueueCapacity": "7",
    "runtime": "[ 1 days, 2 hours, 3 minutes, 4 seconds ]",
    "sendThreadPoolQueueCapacity": "7",
    "listenPort": "20911",
    "storePathRootDir": "/elsewhere",
    "==": "10.0.0.7:20911",
    "bindAddress": "10.0.0.7",
}


def replaced(case: Case, cell: Cell, text: str) -> str:
    return case.printed[: cell.start] + text + case.printed[cell.end :]


def changed(text: str) -> str:
    """Another text of the same kind: one digit or letter is another."""
    position = re.search(r"[0-9A-Za-z]", text[::-1])
    index = len(text) - 1 - position.start() if position else len(text) - 1
    other = str((int(text[index]) + 1) % 10) if text[index].isdigit() and text[index].isascii() else "x"
    return text[:index] + ("y" if other == text[index] else other) + text[index + 1 :]


def left_out_rows(case: Case) -> set[int]:
    """The rows of a case that are not compared."""
    firsts = {cell.row: cell for cell in reversed(cells(case.printed))}
    return {row for row, first in firsts.items() if is_left_out(case.arguments, first)}


def compared_cells(case: Case) -> list[Cell]:
    left_out = left_out_rows(case)
    found = [cell for cell in cells(case.printed) if cell.row not in left_out]
    assert found or not case.printed.strip()
    return found


@each_case
def test_cells_are_all_that_is_printed(case: Case) -> None:
    rest = list(case.printed)
    for cell in cells(case.printed):
        assert case.printed[cell.start : cell.end] == cell.text
        rest[cell.start : cell.end] = " " * len(cell.text)
    assert not re.search(r"[^\s,:.]|more", "".join(rest).replace("... ", "").replace(" more", ""))


@each_case
def test_a_change_in_any_column_that_may_not_differ_fails(case: Case) -> None:
    recorded = normalise(case.arguments, case.printed)
    fixed = [cell for cell in compared_cells(case) if not may_differ(case.arguments, cell)]
    assert fixed or not case.printed.strip()
    for cell in fixed:
        text = changed(cell.text)
        assert normalise(case.arguments, replaced(case, cell, text)) != recorded, (cell, text)


@each_case
def test_a_column_that_may_differ_may_hold_any_value_of_its_form_but_no_other_text(case: Case) -> None:
    recorded = normalise(case.arguments, case.printed)
    for cell in compared_cells(case):
        if may_differ(case.arguments, cell):
            assert normalise(case.arguments, replaced(case, cell, OTHER_VALUES[cell.column])) == recorded, cell
            assert normalise(case.arguments, replaced(case, cell, cell.text + "?")) != recorded, cell
            assert normalise(case.arguments, replaced(case, cell, "")) != recorded, cell


def test_every_column_that_may_differ_occurs_in_a_recorded_output() -> None:
    used = {(case.command, cell.column) for case in CASES for cell in compared_cells(case)}
    assert MAY_DIFFER
    for command, column in MAY_DIFFER:
        assert any(column == name and command in ("*", other) for other, name in used), (command, column)


@each_case
def test_a_line_less_or_a_line_more_fails(case: Case) -> None:
    recorded = normalise(case.arguments, case.printed)
    lines = case.printed.splitlines(keepends=True)
    left_out = left_out_rows(case)
    for number, line in enumerate(lines):
        if line.strip() and number not in left_out:
            assert normalise(case.arguments, "".join(lines[:number] + lines[number + 1 :])) != recorded, line
            assert normalise(case.arguments, "".join([*lines[:number], line, *lines[number:]])) != recorded, line


@each_case
def test_only_rows_that_come_from_a_java_set_may_change_places(case: Case) -> None:
    recorded = normalise(case.arguments, case.printed)
    left_out = left_out_rows(case)
    printed = enumerate(case.printed.splitlines(keepends=True))
    lines = [line for number, line in printed if line.strip() and number not in left_out]
    for number in range(len(lines) - 1):
        first, second = lines[number : number + 2]
        swapped = "".join([*lines[:number], second, first, *lines[number + 2 :]])
        if first != second and normalise(case.arguments, swapped) == recorded:
            rows = [next(cell for cell in cells(swapped) if cell.row == row) for row in (number, number + 1)]
            assert all(is_unordered(case.arguments, cell) for cell in rows), first


def test_properties_that_are_compared_are_recorded_and_the_others_may_be_anything() -> None:
    for command, names in COMPARED.items():
        (case,) = [case for case in CASES if case.command == command]
        lines = case.printed.splitlines(keepends=True)
        left_out = left_out_rows(case)
        kept = [line for number, line in enumerate(lines) if number not in left_out]
        assert {line.split("=")[0].strip() for line in kept} - {""} == names
        assert len(kept) < len(lines)
        assert normalise(case.arguments, "".join(kept)) == normalise(case.arguments, case.printed)


def test_figures_that_one_side_alone_has_make_no_difference() -> None:
    (case,) = [case for case in CASES if case.command == "brokerStatus"]
    more = case.printed + f"{'getTransferedTps':32}: 0.0\n{'rocketlensBitmapEvaluations':32}: 1\n"
    assert normalise(case.arguments, more) == normalise(case.arguments, case.printed)
    assert normalise(case.arguments, f"{more}{'commitLogNewOffset':32}: 1\n") != normalise(case.arguments, case.printed)


def test_all_cases_but_those_that_write_have_a_recorded_output() -> None:
    assert set(read_refused_cases()) == {"cloneGroupOffset", "resetOffsetByTime", "sendMessage"}
    assert len(CASES) == 47
