"""Plain words: phrases that a tired reader stumbles over are in no page, message, help text or docstring."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "docker-compose.yml"])
PACKAGES = ("broker", "protocol", "storage", "spark_jobs", "rocketlens", "benchmarks", "tests/support")

NOT_READ_YET = (
    "broker/service",
    "storage/log/commit_log.py",
    "storage/query",
    "storage/queue",
    "storage/store/message_store.py",
)
"""Folders and modules whose messages alone are held to plain words; everywhere else docstrings are too."""

INSTEAD = {
    r"whoever|whomever": "say who",
    r"the same of\b": "name it again",
    r"what (?:mends|heals)|mends? (?:it|the|them)\b|\bmend:": "fix",
    r"stands? in (?!front\b|for\b)": "is listed in",
    r"(?:is|are|was|were|be|been) told": "is reported",
    r"no room (?:for|on)": "disk full",
    r"nobody reads? on": "output pipe closed",
    r"newest so many|so many (?:messages|findings)\b(?! that)": "at most N",
    r"left to (?:him|her)\b": "is not changed",
    r"without a word": "silently",
    r"which see": "say where it is described",
    r"(?<![\d.])1 (?:(?:more|index|queue) )?(?:processes|messages|files|units|entries|places|records)\b": "counted()",
}
"""Phrases, as regular expressions, and what to write instead."""

ON_THE_WIRE = ("which is told to nobody", "none is told an offset")
"""Of remarks that clients get: they stay as they are, so that what reads them need not change."""


def stilted(text: str) -> list[str]:
    """The phrases of a text that are not to be used."""
    text = re.sub(r"\s+", " ", text)
    for remark in ON_THE_WIRE:
        text = text.replace(remark, "")
    return [found[0] for phrase in INSTEAD for found in re.finditer(rf"\b(?:{phrase})", text, re.I)]


def texts_of(source: str, *, docstrings: bool) -> Iterator[str]:
    """The string literals of a module; `docstrings`, those under assignments too, with them or without."""
    tree = ast.parse(source)
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    is_command = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and any("click" in ast.unparse(each) for each in node.decorator_list)
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        if docstrings or id(node) not in said or id(node) in is_command:
            yield node.value


def sources() -> list[Path]:
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_is_in_plain_words(page: Path) -> None:
    assert stilted(page.read_text()) == []


def test_messages_help_and_docstrings_are_in_plain_words() -> None:
    found = [
        (str(path.relative_to(ROOT)), phrase, text)
        for path in sources()
        for text in texts_of(
            path.read_text(),
            docstrings=not any(path.is_relative_to(ROOT / unread) for unread in NOT_READ_YET),
        )
        for phrase in stilted(text)
    ]
    assert found == []


def test_pages_and_messages_are_found_at_all() -> None:
    assert len(PAGES) > 25
    assert len([text for path in sources() for text in texts_of(path.read_text(), docstrings=False)]) > 5_000


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
    assert len(stilted(text)) == 1
    module = f'"""A module."""\nimport click\n\n\ndef greet():\n    """{text}"""\n    return {text!r}\n'
    assert [len(stilted(each)) for each in texts_of(module, docstrings=False)] == [1]
    assert sum(len(stilted(each)) for each in texts_of(module, docstrings=True)) == 2
    command = module.replace("def greet", "@click.command()\ndef greet")
    assert sum(len(stilted(each)) for each in texts_of(command, docstrings=False)) == 2


@pytest.mark.parametrize(
    "text",
    ["no path stands in front of the =", "1 of 2 files", "11 files", "so many messages that", ON_THE_WIRE[0]],
)
def test_plain_phrases_pass(text: str) -> None:
    assert stilted(text) == []


def test_every_phrase_has_a_planted_one() -> None:
    text = "\n".join(PLANTED)
    assert [phrase for phrase in INSTEAD if not re.search(rf"\b(?:{phrase})", re.sub(r"\s+", " ", text), re.I)] == []
