"""Plain words: phrases that a tired reader stumbles over are on no page and in no text or comment of the product."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "docker-compose.yml"])
PACKAGES = ("broker", "protocol", "storage", "spark_jobs", "rocketlens", "benchmarks", "build_backend", "tests/support")
SOURCES = [
    path
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*"))
    if path.suffix in {".py", ".pyi", ".pyx", ".pxd", ".pxi", ".h"}
]

_MANY = "processes|messages|files|units|entries|places|records"

INSTEAD = {
    r"whoever|whomever": "say who",
    r"the same of\b": "name it again",
    r"what (?:mends|heals)|mends? (?:it|the|them)\b|\b(?<!class )mend:": "fix",
    r"stands? in (?!front\b|for\b)": "is listed in",
    r"(?:is|are|was|were|be|been) told": "is reported",
    r"no room (?:for|on)": "disk full",
    r"nobody reads? on": "output pipe closed",
    r"newest so many|so many (?:messages|findings)\b(?! that)": "at most N",
    r"left to (?:him|her)\b": "is not changed",
    r"without a word": "silently",
    r"which see": "say where it is described",
    rf"(?<![\d.])(?<![=+-] )1 (?:(?:more|index|queue) )?(?-i:{_MANY})\b(?! =)": "counted()",
}
"""Phrases, as regular expressions, and what to write instead."""

_ANY = re.compile(rf"\b(?:{'|'.join(INSTEAD)})", re.IGNORECASE)

_SEAM = re.compile(r"""["']\n\s*f?["']|\n\s*(?:[#*]:?\s)?|\\n""")
"""Where a text goes on in the next line: of a string, of a comment, of a docstring."""

ON_THE_WIRE = ("which is told to nobody", "none is told an offset")
"""Of remarks that clients get: they stay as they are, so that what reads them need not change."""


def stilted(text: str) -> list[str]:
    """The phrases of a page or a source file that are not to be used."""
    text = re.sub(r"\s+", " ", _SEAM.sub(" ", text))
    for remark in ON_THE_WIRE:
        text = text.replace(remark, "")
    return _ANY.findall(text)


def test_pages_and_sources_are_in_plain_words() -> None:
    assert len(PAGES) > 25
    assert len(SOURCES) > 500
    found = {str(path.relative_to(ROOT)): stilted(path.read_text()) for path in [*PAGES, *SOURCES]}
    assert {name: phrases for name, phrases in found.items() if phrases} == {}


PLANTED = (
    "Whoever reads it",
    "as the same of a\n    broker",
    "and what mends it",
    "mend: rocketlens rebuild",
    "it stands in the log",
    "Damage is told",
    "no room for the output",
    "141 nobody read on",
    "The newest so many.",
    "List so many findings",
    "it is left to him",
    "ends without a word",
    "as `rebuild`, which see",
    "1 processes",
    "1 index files",
)


@pytest.mark.parametrize("text", PLANTED)
def test_a_planted_phrase_is_noticed(text: str) -> None:
    words = text.replace("\n    ", " ").split(" ", 2)
    for broken in (text, "\n# ".join(words), ' "\n    f"'.join(words), "\n * ".join(words), "\n    ".join(words)):
        assert len(stilted(f"A {broken}.\n")) == 1, broken


@pytest.mark.parametrize(
    "text",
    ["no path stands in front of the =", "1 of 2 files", "11 files", "so many messages that", ON_THE_WIRE[0]],
)
def test_plain_phrases_pass(text: str) -> None:
    assert stilted(text) == []


def test_every_phrase_has_a_planted_one() -> None:
    text = re.sub(r"\s+", " ", "\n".join(PLANTED))
    assert [phrase for phrase in INSTEAD if not re.search(rf"\b(?:{phrase})", text, re.I)] == []


def test_a_class_name_means_one_thing_in_the_product() -> None:
    places: dict[str, list[str]] = {}
    for package in ("broker", "protocol", "storage", "spark_jobs", "rocketlens"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for name in re.findall(r"^class (\w+)", path.read_text(), re.MULTILINE):
                places.setdefault(name, []).append(str(path.relative_to(ROOT)))
    assert len(places) > 800
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}
