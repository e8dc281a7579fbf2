"""The recorded mqadmin cases of `golden/g1`, and what two runs of one may print differently, column by column.

A printed text is cut into cells that together are all of it but white space. A cell in a column of `MAY_DIFFER` is
compared by its form alone, every other one by its text; rows that Java prints in the order of a hash table are compared
as a set.
"""

import re
from dataclasses import dataclass

from golden_store import G1

ADDRESS = r"\[?[0-9a-f.:]+\]?:\d+"
NUMBER = r"\d+(\.\d+)?"
READABLE = r"[46]"
LOAD = rf"{NUMBER}\({NUMBER},\d+ms(\|{NUMBER},\d+ms)?\)"

MAY_DIFFER: dict[tuple[str, str], str] = {
    ("clusterList", "#Addr"): ADDRESS,
    ("clusterList", "#Version"): r"V\d+_\d+_\d+",
    ("clusterList", "#InTPS(LOAD)"): LOAD,
    ("clusterList", "#OutTPS(LOAD)"): LOAD,
    ("clusterList", "#Timer(Progress)"): rf"\d+-\d+\({NUMBER}w, {NUMBER}, {NUMBER}\)",
    ("clusterList", "#PCWait(ms)"): NUMBER,
    ("clusterList", "#Hour"): NUMBER,
    ("clusterList", "#SPACE"): NUMBER,
    ("topicRoute", "0"): f'"{ADDRESS}"',
    ("topicRoute", '"perm"'): READABLE,
    ("topicRoute", "#BrokerAddrs"): rf"\{{0={ADDRESS}\}}",
    ("topicRoute", "#Perm"): READABLE,
    ("*", "... more"): r"\d+",
}
"""(command, column) → what the text there must look like. ``... more`` counts the frames of mqadmin's callers too."""

UNORDERED = {
    "topicList": "line",
    "topicList -c": "#Cluster Name|piece 0",
    "queryMsgById": "MessageTrack",
    "queryMsgByUniqueKey": "MessageTrack",
    "queryMsgByOffset": "MessageTrack",
    "brokerConsumeStats": "#Topic",
}
"""Command → the first column of the rows that come in the order of a Java hash table."""


REPLAYED = {"brokerStatus", "getBrokerConfig", "getNamesrvConfig"}
"""Commands that print one answer as it is: that it is as recorded is compared where the frames are replayed."""


@dataclass(frozen=True)
class Case:
    name: str
    arguments: str
    printed: str

    @property
    def command(self) -> str:
        return self.arguments.split()[0]


def read_cases(folder=G1) -> list[Case]:
    cases = [each for each in _all_cases(folder) if each[1].split()[0] not in REPLAYED]
    outputs = [(*each, _output(folder, each[0])) for each in cases]
    return [Case(name, arguments, path.read_text()) for name, arguments, path in outputs if path.exists()]


def read_refused_cases(folder=G1) -> dict[str, str]:
    return {name: arguments for name, arguments in _all_cases(folder) if not _output(folder, name).exists()}


def _all_cases(folder) -> list[tuple[str, str]]:
    lines = (folder / "mqadmin.cases").read_text().splitlines()
    return [(name, arguments) for name, _, arguments in (line.partition("|") for line in lines)]


def _output(folder, name):
    return folder / "mqadmin-out" / f"{name}.txt"


@dataclass(frozen=True)
class Cell:
    row: int
    column: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def cells(text: str) -> list[Cell]:
    found: list[Cell] = []
    columns: list[str] = []
    start = 0
    for row, line in enumerate(text.splitlines(keepends=True)):
        if line.startswith("#"):
            columns = [name.strip() for name in re.findall(r"#[^#]+", line)]
            found.append(Cell(row, "heading", line.strip(), start))
        elif columns and line.strip():
            found += _table_row(row, line, start, columns)
        else:
            columns = []
            found += _free_line(row, line, start)
        start += len(line)
    return found


def normalise(arguments: str, text: str) -> list[tuple[str, ...]]:
    command = arguments.split()[0]
    rows: dict[int, list[Cell]] = {}
    for cell in cells(text):
        rows.setdefault(cell.row, []).append(cell)
    result: list[tuple[str, ...]] = []
    run: list[tuple[str, ...]] = []
    for row in rows.values():
        shown = [f"{cell.column}: {_shown(command, cell)}" for cell in row]
        if is_unordered(arguments, row[0]):
            # One line may hold several tracks of a message.
            run.append(tuple(sorted(shown)))
        else:
            result += [*sorted(run), tuple(shown)]
            run = []
    return result + sorted(run)


def may_differ(arguments: str, cell: Cell) -> bool:
    return _form(arguments.split()[0], cell.column) is not None


def is_unordered(arguments: str, first: Cell) -> bool:
    command = arguments.split()[0]
    columns = UNORDERED.get(f"{command} -c" if " -c" in arguments else command)
    return columns is not None and re.fullmatch(columns, first.column) is not None


def _shown(command: str, cell: Cell) -> str:
    form = _form(command, cell.column)
    return "<may differ>" if form is not None and re.fullmatch(form, cell.text) else cell.text


def _form(command: str, column: str) -> str | None:
    return MAY_DIFFER.get((command, column)) or MAY_DIFFER.get(("*", column))


def _table_row(row, line, start, columns):
    """Cells are set apart by one blank or, in tables whose cells hold blanks, by two."""
    pieces = [*re.finditer(r"\S+", line)]
    if len(pieces) != len(columns):
        pieces = [*re.finditer(r"\S+( \S+)*", line)]
    names = columns if len(pieces) == len(columns) else [f"piece {number}" for number in range(len(pieces))]
    for name, piece in zip(names, pieces, strict=True):
        yield Cell(row, name, piece.group(), start + piece.start())


def _free_line(row, line, start):
    if line.startswith("MessageTrack ["):
        tracks = re.finditer(r"MessageTrack \[.*?(?=MessageTrack \[|\s*$)", line)
        yield from (Cell(row, "MessageTrack", track.group(), start + track.start()) for track in tracks)
    elif match := re.fullmatch(r"\t\.\.\. (\d+) more\n?", line):
        yield Cell(row, "... more", match.group(1), start + match.start(1))
    elif match := re.fullmatch(r"\t+(\"?\w+\"?):(.+?),?\n?", line):
        yield Cell(row, "member", match.group(1), start + match.start(1))
        yield Cell(row, match.group(1), match.group(2), start + match.start(2))
    elif match := re.fullmatch(r"([A-Z][A-Za-z ]+:) +(\S.*?)\s*", line):
        yield Cell(row, "label", match.group(1), start + match.start(1))
        yield Cell(row, match.group(1), match.group(2), start + match.start(2))
    elif line.strip():
        yield Cell(row, "line", line.strip(), start + len(line) - len(line.lstrip()))
