"""What two runs of the same mqadmin command may print differently, column by column, and the comparison of the rest.

A printed text is cut into cells that together are all of it but white space. A cell in a column of `MAY_DIFFER` is
compared by its form alone, every other one by its text; rows that Java prints in the order of a hash table are compared
as a set. Of a configuration only the properties in `COMPARED` are looked at: the others configure what is not here.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

ADDRESS = r"\[?[0-9a-f.:]+\]?:\d+"
NUMBER = r"\d+(\.\d+)?"
READABLE = r"[46]"
RATES = rf"({NUMBER} ?){{1,3}}"
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
    ("brokerStatus", "EndTransactionThreadPoolQueueCapacity"): r"\d+",
    ("brokerStatus", "ackThreadPoolQueueCapacity"): r"\d+",
    ("brokerStatus", "bootTimestamp"): r"\d{13}",
    ("brokerStatus", "brokerVersionDesc"): r"V\d+_\d+_\d+",
    ("brokerStatus", "commitLogDirCapacity"): rf"Total : {NUMBER} [KMGT]iB, Free : {NUMBER} [KMGT]iB\.",
    ("brokerStatus", "commitLogDiskRatio"): NUMBER,
    ("brokerStatus", "consumeQueueDiskRatio"): NUMBER,
    ("brokerStatus", "getFoundTps"): RATES,
    ("brokerStatus", "getMessageEntireTimeMax"): r"\d+",
    ("brokerStatus", "getMissTps"): RATES,
    ("brokerStatus", "getTotalTps"): RATES,
    ("brokerStatus", "getTransferredTps"): RATES,
    ("brokerStatus", "litePullThreadPoolQueueCapacity"): r"\d+",
    ("brokerStatus", "msgGetTotalTodayNow"): r"\d+",
    ("brokerStatus", "msgPutTotalTodayNow"): r"\d+",
    ("brokerStatus", "pullThreadPoolQueueCapacity"): r"\d+",
    ("brokerStatus", "putMessageAverageSize"): NUMBER,
    ("brokerStatus", "putMessageDistributeTime"): r"null|(\[\S+\]:\d+ ?)+",
    ("brokerStatus", "putMessageEntireTimeMax"): r"\d+",
    ("brokerStatus", "putMessageSizeTotal"): r"\d+",
    ("brokerStatus", "putMessageTimesTotal"): r"\d+",
    ("brokerStatus", "putTps"): RATES,
    ("brokerStatus", "queryThreadPoolQueueCapacity"): r"\d+",
    ("brokerStatus", "runtime"): r"\[ \d+ days, \d+ hours, \d+ minutes, \d+ seconds \]",
    ("brokerStatus", "sendThreadPoolQueueCapacity"): r"\d+",
    ("getBrokerConfig", "listenPort"): r"\d+",
    ("getBrokerConfig", "storePathRootDir"): r"(/[\w.-]+)+",
    ("getNamesrvConfig", "=="): ADDRESS,
    ("getNamesrvConfig", "bindAddress"): r"[0-9a-f.:]+",
    ("getNamesrvConfig", "listenPort"): r"\d+",
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
    "getBrokerConfig": "property",
    "getNamesrvConfig": "property",
}
"""Command → the first column of the rows that come in the order of a Java hash table."""

COMPARED = {
    "getBrokerConfig": {
        "brokerClusterName",
        "brokerIP1",
        "brokerId",
        "brokerName",
        "brokerRole",
        "enablePropertyFilter",
        "flushDiskType",
        "listenPort",
        "mappedFileSizeCommitLog",
        "mappedFileSizeConsumeQueue",
        "maxHashSlotNum",
        "maxIndexNum",
        "maxMessageSize",
        "messageDelayLevel",
        "msgTraceTopicName",
        "slaveReadEnable",
        "storePathRootDir",
        "traceOn",
        "traceTopicEnable",
        "useTLS",
    },
    "getNamesrvConfig": {
        "bindAddress",
        "enableAllTopicList",
        "enableTopicList",
        "listenPort",
        "orderMessageEnable",
        "serverChannelMaxIdleTimeSeconds",
        "supportActingMaster",
    },
}
"""Command → the properties of a configuration that mean something here."""

ONE_SIDED = {"brokerStatus": r"commitLogDiskRatio_/.*|getTransferedTps|brokerVersion|rocketlens\w+"}
"""Command → properties that only one of two servers has: named after a path, for exporters and old clients, ours."""


PROPERTY = re.compile(r"(?P<name>(?=[^:]{32,}: |[^=]{40,}=  )\w[^\s:.=]* *[:=]) *(?P<value>\S.*?)?\s*")
"""A name in a wide column, and its value, behind a colon (brokerStatus) or an equals sign (configurations)."""


@dataclass(frozen=True)
class Cell:
    """One piece of a printed text: its row, the name of its column, its text and where that starts."""

    row: int
    column: str
    text: str
    start: int

    @property
    def end(self) -> int:
        """Where the piece ends."""
        return self.start + len(self.text)


def cells(text: str) -> list[Cell]:
    """All of ``text`` but white space, in order."""
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
    """The rows of what ``mqadmin ARGUMENTS`` printed, ready to be compared with ``==``."""
    command = arguments.split()[0]
    rows: dict[int, list[Cell]] = {}
    for cell in cells(text):
        rows.setdefault(cell.row, []).append(cell)
    result: list[tuple[str, ...]] = []
    run: list[tuple[str, ...]] = []
    for row in rows.values():
        if is_left_out(arguments, row[0]):
            continue
        shown = [f"{cell.column}: {_shown(command, cell)}" for cell in row]
        if is_unordered(arguments, row[0]):
            # One line may hold several tracks of a message.
            run.append(tuple(sorted(shown)))
        else:
            result += [*sorted(run), tuple(shown)]
            run = []
    return result + sorted(run)


def may_differ(arguments: str, cell: Cell) -> bool:
    """Whether only the form of this cell is compared."""
    return _form(arguments.split()[0], cell.column) is not None


def is_unordered(arguments: str, first: Cell) -> bool:
    """Whether the row that begins with this cell may change places with its neighbours of the same kind."""
    command = arguments.split()[0]
    columns = UNORDERED.get(f"{command} -c" if " -c" in arguments else command)
    return columns is not None and re.fullmatch(columns, first.column) is not None


def is_left_out(arguments: str, first: Cell) -> bool:
    """Whether the row that begins with this cell is a property that is not compared."""
    if first.column != "property":
        return False
    command, name = arguments.split()[0], first.text.rstrip(" :=")
    if command in COMPARED:
        return name not in COMPARED[command]
    return re.fullmatch(ONE_SIDED.get(command, ""), name) is not None


def _shown(command: str, cell: Cell) -> str:
    form = _form(command, cell.column)
    return "<may differ>" if form is not None and re.fullmatch(form, cell.text) else cell.text


def _form(command: str, column: str) -> str | None:
    return MAY_DIFFER.get((command, column)) or MAY_DIFFER.get(("*", column))


def _table_row(row: int, line: str, start: int, columns: list[str]) -> Iterator[Cell]:
    """Cells are set apart by one blank or, in tables whose cells hold blanks, by two."""
    pieces = [*re.finditer(r"\S+", line)]
    if len(pieces) != len(columns):
        pieces = [*re.finditer(r"\S+( \S+)*", line)]
    names = columns if len(pieces) == len(columns) else [f"piece {number}" for number in range(len(pieces))]
    for name, piece in zip(names, pieces, strict=True):
        yield Cell(row, name, piece.group(), start + piece.start())


def _free_line(row: int, line: str, start: int) -> Iterator[Cell]:
    """A line outside tables: tracks, a property, a banner, the end of a stack, a JSON member, a label, any text."""
    if line.startswith("MessageTrack ["):
        tracks = re.finditer(r"MessageTrack \[.*?(?=MessageTrack \[|\s*$)", line)
        yield from (Cell(row, "MessageTrack", track.group(), start + track.start()) for track in tracks)
    elif match := PROPERTY.fullmatch(line):
        yield Cell(row, "property", match["name"], start + match.start("name"))
        if match["value"]:
            yield Cell(row, match["name"].rstrip(" :="), match["value"], start + match.start("value"))
    elif match := re.fullmatch(r"(=+)([^=]+)(=+)\n?", line):
        yield Cell(row, "=", match[1], start)
        yield Cell(row, "==", match[2], start + match.start(2))
        yield Cell(row, "===", match[3], start + match.start(3))
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
