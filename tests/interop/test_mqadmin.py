"""mqadmin, unchanged and pointed at nothing but our server, prints what it printed against the live broker."""

import re

import pytest

from interop.jars import SERVER_VERSION
from interop.normalise import Case, cells, may_differ, normalise, read_cases, read_refused_cases
from interop.sites import QUERY_MESSAGE, VIEW_MESSAGE_BY_ID, site

pytestmark = pytest.mark.interop

CASES = read_cases()
BY_NAME = {case.name: case for case in CASES}
ID_CASES = [case for case in CASES if case.command == "queryMsgById"]
UNIQUE_KEY = "queryMsgById-unique"
NOTHING_THERE = "queryMsgById-badoffset"
INSIDE_A_RECORD = "queryMsgById-midrecord"
"""The broker sent 70,618 bytes that are no message, which mqadmin called not found; ours says that nothing is there."""

REFUSED = {
    "cloneGroupOffset": "CODE: 16  DESC: this broker is read-only: offsets of a group are taken from its members alone",
    "resetOffsetByTime": "CODE: 16  DESC: this broker is read-only",
    "sendMessage": "No route info of this topic: TopicTest",
}
"""How the cases that write are refused; a producer finds no queue to write to, and sends nothing."""

FORMS = {"JSON": 0, "ROCKETMQ": 1}
"""Each header form and its number in a frame."""


def in_each_form(cases: list[Case]) -> pytest.MarkDecorator:
    """The first case of each command with JSON headers; the others, and binary ones, are for `make soak`."""
    first = {case.command: case for case in reversed(cases)}.values()
    return pytest.mark.parametrize(
        ("case", "form"),
        [
            pytest.param(
                case, form, marks=[] if form == "JSON" and (case in first or case in ID_CASES) else pytest.mark.soak
            )
            for form in FORMS
            for case in cases
        ],
        ids=lambda value: value.name if isinstance(value, Case) else value,
    )


@pytest.fixture(scope="module", params=[True, False], ids=["on-the-address-in-the-id", "elsewhere"])
def where(request, g1_store, tmp_path_factory):
    with site(g1_store, tmp_path_factory.mktemp("mqadmin"), in_ids=request.param) as running:
        yield running


@pytest.fixture(scope="module")
def anywhere(g1_store, tmp_path_factory):
    with site(g1_store, tmp_path_factory.mktemp("anywhere"), in_ids=True) as running:
        yield running


def expected(case, where) -> str:
    """What the case must print here: as recorded, but for a deviation and for what the fallback cannot carry."""
    if case.name == INSIDE_A_RECORD:
        return BY_NAME[NOTHING_THERE].printed
    if where.is_in_ids or case.name == UNIQUE_KEY:
        return case.printed
    return "\n".join(_without_unique_keys(case.printed.split("\n")))


def _without_unique_keys(lines):
    """An id found by a unique-key query comes without unique key, and mqadmin names the body file by the offset id."""
    offset_id = ""
    for line in lines:
        if match := re.fullmatch(r"OffsetID: +(\w+)", line):
            offset_id = match.group(1)
        if line.startswith("Properties:"):
            yield re.sub(r"UNIQ_KEY=\w+, ", "", line)
        elif line.startswith("Message Body Path:"):
            yield re.sub(r"[^/]+$", offset_id, line)
        else:
            yield line


def expected_lookups(case, where) -> list[int]:
    """One lookup an id: a view if its address lives, else a unique-key query, which also follows a view in vain."""
    ids = case.arguments.split(" -i ")[1].split(",")
    if not where.is_in_ids or case.name == UNIQUE_KEY:
        return [QUERY_MESSAGE] * len(ids)
    if case.name in (NOTHING_THERE, INSIDE_A_RECORD):
        return [VIEW_MESSAGE_BY_ID, QUERY_MESSAGE]
    return [VIEW_MESSAGE_BY_ID] * len(ids)


@in_each_form(ID_CASES)
def test_an_id_is_resolved_wherever_the_server_stands(java, where, case, form) -> None:
    where.forget()
    printed = java(SERVER_VERSION, form).mqadmin(*case.arguments.split(), "-n", where.name_server)
    assert normalise(case.arguments, printed) == normalise(case.arguments, expected(case, where))
    assert where.lookups() == expected_lookups(case, where)
    assert {frame.serialization for frame in where.lookup_frames()} == {FORMS[form]}


@in_each_form([case for case in CASES if case not in ID_CASES])
def test_any_other_command_prints_what_it_printed_against_the_live_broker(java, anywhere, case, form) -> None:
    printed = java(SERVER_VERSION, form).mqadmin(*case.arguments.split(), "-n", anywhere.name_server)
    assert normalise(case.arguments, printed) == normalise(case.arguments, case.printed)


@pytest.mark.parametrize(("name", "arguments"), read_refused_cases().items())
def test_a_command_that_writes_is_refused(java, anywhere, name, arguments) -> None:
    anywhere.forget()
    printed = java(SERVER_VERSION, "JSON").mqadmin(*arguments.split(), "-n", anywhere.name_server)
    assert REFUSED[name] in printed
    # Nothing that a user would take for a success.
    assert "success" not in printed
    assert "SEND_OK" not in printed


def other(text: str) -> str:
    position = max((found.start() for found in re.finditer(r"[0-9A-Za-z]", text)), default=len(text) - 1)
    letter = str((int(text[position]) + 1) % 10) if text[position] in "0123456789" else "xy"[text[position] == "x"]
    return text[:position] + letter + text[position + 1 :]


def test_the_comparison_notices_a_change_in_each_column_but_for_what_may_differ_in_its_form() -> None:
    columns = 0
    for case in CASES:
        recorded, every = normalise(case.arguments, case.printed), cells(case.printed)
        for cell in {cell.column: cell for cell in every}.values():
            changed = f"{cell.text}?" if may_differ(case.arguments, cell) else other(cell.text)
            printed = case.printed[: cell.start] + changed + case.printed[cell.end :]
            assert normalise(case.arguments, printed) != recorded, (case.name, cell)
            columns += 1
    assert columns > 250
