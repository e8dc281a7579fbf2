"""Plain words: phrases that a tired reader stumbles over are in no page, message, help text, docstring or comment."""

import ast
import functools
import io
import itertools
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "docker-compose.yml"])
PACKAGES = ("broker", "protocol", "storage", "spark_jobs", "rocketlens", "benchmarks", "build_backend", "tests")

COMPILED = (".pyx", ".pxd", ".pxi", ".h")

PLANTS_PHRASES = Path(__file__)
"""The one module that is not read at all, because it names every phrase that is not to be used."""

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


def docstrings_of(source: str) -> list[str]:
    """The docstrings of a module, those under assignments too, and none of its other strings."""
    said = [node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Expr)]
    return [value.value for value in said if isinstance(value, ast.Constant) and isinstance(value.value, str)]


def texts_of(source: str, *, docstrings: bool) -> Iterator[str]:
    """The string literals of a module; `docstrings`, those under assignments too, with them or without."""
    nodes = list(ast.walk(ast.parse(source)))
    said = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    is_command = {
        id(node.body[0].value)
        for node in nodes
        if isinstance(node, ast.FunctionDef)
        and any("click" in ast.unparse(each) for each in node.decorator_list)
        and isinstance(node.body[0], ast.Expr)
    }
    for node in nodes:
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        if docstrings or id(node) not in said or id(node) in is_command:
            yield node.value


@functools.cache
def comments_of(source: str) -> list[str]:
    """The comments of a module; comments on lines that follow each other are one text."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return joined((token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT)


PIECE_OF_COMPILED = re.compile(
    r'"""(?:\\.|[^\\])*?"""'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'(?:\\.|[^'\\\n])*'"
    r"|#[^\n]*"
    r"|/\*.*?\*/",
    re.DOTALL,
)
"""A string or a comment of a Cython module or a C header."""


def texts_of_compiled(source: str) -> list[str]:
    """The strings and comments of a Cython module or a C header, which Python's own parser cannot read."""
    comments: list[tuple[int, str]] = []
    texts: list[str] = []
    for found in PIECE_OF_COMPILED.finditer(source):
        if found[0].startswith("#"):
            comments.append((source.count("\n", 0, found.start()), found[0]))
        else:
            texts.append(re.sub(r"\n \* ", "\n", found[0].strip("\"'")))
    return texts + joined(comments)


def joined(comments: Iterable[tuple[int, str]]) -> list[str]:
    """Comments with the numbers of their lines, each run of neighbouring lines as one text without its signs."""
    texts: list[str] = []
    last = -1
    for line, comment in comments:
        text = comment.lstrip("# ")
        if line == last + 1 and texts:
            texts[-1] += f" {text}"
        else:
            texts.append(text)
        last = line
    return texts


def is_test(path: Path) -> bool:
    """Whether a file is a test: its strings other than docstrings are data, which are not held."""
    return path.is_relative_to(ROOT / "tests") and not path.is_relative_to(ROOT / "tests" / "support")


def all_texts_of(path: Path) -> Iterator[str]:
    """Every text of a source file that is held to plain words; of a test, its docstrings and comments alone."""
    source = path.read_text()
    if path.suffix in COMPILED:
        yield from texts_of_compiled(source)
        return
    if is_test(path):
        yield from docstrings_of(source)
    else:
        yield from texts_of(source, docstrings=True)
    yield from comments_of(source)


def sources() -> list[Path]:
    return sorted(
        path
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.suffix in {".py", ".pyi", *COMPILED} and path != PLANTS_PHRASES
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_is_in_plain_words(page: Path) -> None:
    assert stilted(page.read_text()) == []


def test_messages_help_docstrings_and_comments_are_in_plain_words() -> None:
    found = [
        (str(path.relative_to(ROOT)), phrase, text)
        for path in sources()
        for text in all_texts_of(path)
        for phrase in stilted(text)
    ]
    assert found == []


def test_pages_and_messages_are_found_at_all() -> None:
    assert len(PAGES) > 25
    modules = [path.read_text() for path in sources() if path.suffix == ".py" and not is_test(path)]
    tests = [path.read_text() for path in sources() if is_test(path)]
    compiled = [path.read_text() for path in sources() if path.suffix in COMPILED]
    for fewest, texts in (
        (5_000, (text for module in modules for text in texts_of(module, docstrings=False))),
        (500, (text for module in modules for text in comments_of(module))),
        (1_500, (text for test in tests for text in docstrings_of(test))),
        (500, (text for test in tests for text in comments_of(test))),
        (500, (text for module in compiled for text in texts_of_compiled(module))),
    ):
        assert len(list(itertools.islice(texts, fewest + 1))) > fewest  # no more than these are looked for


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
    assert [len(stilted(each)) for each in docstrings_of(module)] == [0, 1]
    assert [len(stilted(each)) for each in docstrings_of(f'LIMIT = 7\n"""{text}"""\n')] == [1]
    command = module.replace("def greet", "@click.command()\ndef greet")
    assert sum(len(stilted(each)) for each in texts_of(command, docstrings=False)) == 2
    comment = "    # ".join(text.splitlines(keepends=True))
    commented = f"value = 1  # {comment}\nother = 2\n"
    assert [len(stilted(each)) for each in comments_of(commented)] == [1]
    compiled = f'cdef int value = 1  # {comment}\n\n\ncdef int greet():\n    """{text}"""\n    return b"{{"[0]\n'
    assert sum(len(stilted(each)) for each in texts_of_compiled(compiled)) == 2
    header = "int greet(void); /* " + " * ".join(text.splitlines(keepends=True)) + " */"
    assert sum(len(stilted(each)) for each in texts_of_compiled(header)) == 1


@pytest.mark.parametrize(
    "text",
    ["no path stands in front of the =", "1 of 2 files", "11 files", "so many messages that", ON_THE_WIRE[0]],
)
def test_plain_phrases_pass(text: str) -> None:
    assert stilted(text) == []


def test_every_phrase_has_a_planted_one() -> None:
    text = "\n".join(PLANTED)
    assert [phrase for phrase in INSTEAD if not re.search(rf"\b(?:{phrase})", re.sub(r"\s+", " ", text), re.I)] == []
