"""The recorded stores of `tests/golden`, unpacked where a test or the demo wants them.

Run as a program, `python tests/support/golden_store.py NAME DIRECTORY` unpacks one and prints its path.
"""

import lzma
import sys
import tarfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

GOLDEN = Path(__file__).parents[1] / "golden"
G1 = GOLDEN / "g1"
CASES = GOLDEN / "cases"
"""Small stores of faults that people met, each with what is true of it."""


def unpack(name: str, directory: Path, *, archives: Path = G1) -> Path:
    """Unpack `archives/NAME.tar.xz` under `directory` and return the store's root."""
    directory.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archives / f"{name}.tar.xz") as archive:
        # Python before 3.11.4 has no filters, and no parameter to ask for one.
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _path: member)
        roots = {member.name.split("/", 1)[0] for member in archive.getmembers()}
        if len(roots) != 1:
            raise ValueError(f"{name}.tar.xz holds {len(roots)} folders at its top, expected one: {sorted(roots)}")
        archive.extractall(directory)
    return directory / roots.pop()


def log_folders(root: Path) -> list[Path]:
    """The directories of a recorded store's log: plain ones, and those in which it is DLedger's."""
    plain = (path for path in root.iterdir() if path.name.startswith("commitlog"))
    return [*sorted(plain), *sorted(root.glob("dledger-*/data"))]


class Produced(NamedTuple):
    """A message of g1, as the broker answered its producer."""

    unique_key: str
    offset_message_id: str
    topic: str
    queue_id: int
    queue_offset: int
    keys: list[str]
    tags: str | None
    label: str

    @property
    def physical_offset(self) -> int:
        return int(self.offset_message_id[16:], 16)


def produced() -> list[Produced]:
    """Those of g1 that are no batch, and that a transaction did not take back."""
    lines = [line.split("\t") for line in (G1 / "produced.tsv").read_text("utf-8").splitlines()]
    told = [(row, [None if text == "null" else text for text in row[7:]]) for row in lines if len(row) == 9]
    return [
        Produced(*row[2:5], int(row[5]), int(row[6]), (keys or "").split(), tags, row[0])
        for row, (keys, tags) in told
        if row[3] not in ("", "null")
    ]


if __name__ == "__main__":
    print(unpack(sys.argv[1], Path(sys.argv[2])))


@cache
def _lines() -> list[list[str]]:
    with lzma.open(GOLDEN.parent / "data" / "java-vectors.tsv.xz", "rt", encoding="ascii") as file:
        return [line.rstrip("\n").split("\t") for line in file]


def vectors(*kinds: str) -> list[list[str]]:
    """The columns of every vector of these kinds, in the file's order; the kind itself only if there are several."""
    found = [line if len(kinds) > 1 else line[1:] for line in _lines() if line[0] in kinds]
    assert found, kinds
    return found


def text(column: str) -> str:
    return bytes.fromhex(column).decode("utf-16-be", "surrogatepass")


def pairs(column: str) -> dict[str, str]:
    split = (pair.split("=") for pair in column.split(",") if pair)
    return {text(name): text(value) for name, value in split}
