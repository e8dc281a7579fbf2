"""The recorded mqadmin cases that issue from `golden/g1` and that our server must answer alike."""

from dataclasses import dataclass
from pathlib import Path

from golden_store import G1

COMMANDS = {
    "queryMsgById",
    "queryMsgByKey",
    "queryMsgByUniqueKey",
    "queryMsgByOffset",
    "topicList",
    "topicRoute",
    "topicStatus",
    "topicClusterList",
    "clusterList",
    "queryCq",
}


@dataclass(frozen=True)
class Case:
    """One recorded command: name, arguments as one text, what it printed against the live broker."""

    name: str
    arguments: str
    printed: str

    @property
    def command(self) -> str:
        """The name of the mqadmin command."""
        return self.arguments.split()[0]


def read_cases(folder: Path = G1) -> list[Case]:
    """The recorded cases of `COMMANDS`, in the order they were recorded."""
    lines = (folder / "mqadmin.cases").read_text().splitlines()
    cases = (line.split("|", 1) for line in lines)
    return [
        Case(name, arguments, (folder / "mqadmin-out" / f"{name}.txt").read_text())
        for name, arguments in cases
        if arguments.split()[0] in COMMANDS
    ]
