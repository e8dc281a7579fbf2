"""Which lines of the kernels ran, by what gcc counted in the C that Cython made of them.

Cython writes before the C of each line a comment that names it:

    /* "storage/kernels/records.pyx":103
     *     require(region, position, stop)             # <<<<<<<<<<<<<<

A line counts if there is C for it, and is covered if some of that ran, in any module: an inline function of a `.pxd` is
in several. What stands behind the last line of a function (to let objects go, to note where an error was) is no line's.
"""

import json
import re
import subprocess
from collections import defaultdict
from pathlib import Path

_MARKER = re.compile(r'^\s*/\* "([\w./]+\.(?:pyx|pxd))":(\d+)$')
_NO_LINES = re.compile(r"^(\}|\s*/\* function exit code \*/)")

Lines = dict[str, dict[int, bool]]
"""By source and number, whether a line ran."""


def places_in(generated: Path) -> dict[int, tuple[str, int]]:
    """For each line of a C file the line of a source that it is of."""
    places: dict[int, tuple[str, int]] = {}
    current: tuple[str, int] | None = None
    for number, text in enumerate(generated.read_text().splitlines(), 1):
        marker = _MARKER.match(text)
        if marker:
            current = (marker[1], int(marker[2]))
        elif _NO_LINES.match(text):
            current = None
        elif current:
            places[number] = current
    return places


def covered(directory: Path) -> Lines:
    """The lines of all modules of which objects lie below a directory."""
    lines: Lines = defaultdict(dict)
    for notes in sorted(directory.rglob("*.gcno")):
        asked = ["gcov", "--json-format", "--stdout", str(notes)]
        told = subprocess.run(asked, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout
        for file in json.loads(told)["files"]:
            path = Path(file["file"])
            places = places_in(path) if path.suffix == ".c" and path.exists() else {}
            for line in file["lines"]:
                place = places.get(line["line_number"])
                if place and Path(place[0]).exists():
                    source, number = place
                    lines[source][number] = lines[source].get(number, False) or line["count"] > 0
    return lines


def runs_of_missing(lines: dict[int, bool]) -> list[str]:
    """The lines that did not run, as ranges between those that did."""
    runs: list[list[int]] = []
    follows = False
    for number, has_run in sorted(lines.items()):
        if not has_run and follows:
            runs[-1][1] = number
        elif not has_run:
            runs.append([number, number])
        follows = not has_run
    return [str(first) if first == last else f"{first}-{last}" for first, last in runs]


def print_covered(directory: Path) -> None:
    """Print per source how many of its lines ran, which did not, and all together."""
    total = ran = 0
    for source, lines in sorted(covered(directory).items()):
        missing = runs_of_missing(lines)
        covered_here = sum(lines.values())
        total, ran = total + len(lines), ran + covered_here
        print(f"{source:40} {covered_here:4} of {len(lines):4}{'  not: ' if missing else ''}{', '.join(missing)}")
    if total:
        print(f"{'all':40} {ran:4} of {total:4}, {ran / total:.1%}")
