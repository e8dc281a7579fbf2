"""The recorded mqadmin cases of `golden/g1`: what our server must answer alike, and what it must refuse."""

from dataclasses import dataclass
from pathlib import Path

from golden_store import G1


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
    """The cases with a recorded output, in the order they were recorded."""
    return [
        Case(name, arguments, output.read_text())
        for name, arguments in _all_cases(folder)
        if (output := _output(folder, name)).exists()
    ]


def read_refused_cases(folder: Path = G1) -> dict[str, str]:
    """The arguments of the cases without a recorded output, by name: they write."""
    return {name: arguments for name, arguments in _all_cases(folder) if not _output(folder, name).exists()}


def _all_cases(folder: Path) -> list[tuple[str, str]]:
    lines = (folder / "mqadmin.cases").read_text().splitlines()
    return [(name, arguments) for name, _, arguments in (line.partition("|") for line in lines)]


def _output(folder: Path, name: str) -> Path:
    return folder / "mqadmin-out" / f"{name}.txt"
