"""The book of the formats in `docs/internals`: what the code cites is there."""

import re
from pathlib import Path

import pytest

import header_oracle
from layouts import tiles_of
from protocol import message_id, message_layout
from protocol.frame import PREFIX
from storage.index import index_file
from storage.layout import checkpoint, dledger, rocksdb_config, timer_check, timer_log
from storage.queue import batch_consume_queue, consume_queue, consume_queue_ext

ROOT = Path(__file__).parent.parent
BOOK = ROOT / "docs" / "internals"
DOCUMENTS = {path.stem: path.read_text() for path in BOOK.glob("*.md") if path.stem != "README"}
CITING = ("broker", "protocol", "storage", "spark_jobs", "rocketlens", "build_backend", "benchmarks", "tests", "docs")
CITATION = re.compile(rf"\b({'|'.join(DOCUMENTS)})(?:\.md)?,?\s+(?=§)|§\s*(\d+(?:\.\d+)*)")
LINE_BREAK = re.compile(r"\n\s*(?:#|//|\*)?\s*")


def sections(document: str) -> set[str]:
    return set(re.findall(r"^#+ (?:Traps )?§?(\d+(?:\.\d+)*)\b", DOCUMENTS[document], re.MULTILINE))


def citations(text: str, home: str | None = None) -> list[tuple[str | None, str]]:
    """Document and section of each §; one that names no document is of the one named last."""
    found: list[tuple[str | None, str]] = []
    document = home
    for match in CITATION.finditer(LINE_BREAK.sub(" ", text)):
        if match[1]:
            document = match[1]
        else:
            found.append((document, match[2]))
    return found


def sources() -> list[Path]:
    kinds = {".py", ".pyx", ".pxd", ".pyi", ".h", ".md", ".java", ".js"}
    found = [*ROOT.glob("*.md"), *(path for name in CITING for path in (ROOT / name).rglob("*"))]
    return sorted(path for path in found if path.suffix in kinds and "golden" not in path.parts and path.parent != BOOK)


def test_every_citation_leads_to_a_section() -> None:
    known = {document: sections(document) for document in DOCUMENTS}
    assert {"2.2", "5.1"} <= known["store-format"]
    wrong, count = [], 0
    for path in sources():
        for document, section in citations(path.read_text()):
            count += 1
            if document is None or section not in known[document]:
                wrong.append(f"{path.relative_to(ROOT)}: {document} §{section}")
    assert wrong == []
    assert count > 100, "the citations are found"


@pytest.mark.parametrize("document", sorted(DOCUMENTS))
def test_the_book_cites_itself_rightly(document: str) -> None:
    # A page of another project's specification would be no section of ours: such are named by RFC and RIP.
    text = re.sub(r"\b(?:RFC|RIP)[ -]\d+(?: §[\d.]+)?", "", DOCUMENTS[document])
    wrong = []
    for paragraph in text.split("\n"):
        for named, section in citations(paragraph, document):
            if named is not None and section not in sections(named):
                wrong.append(f"{named} §{section}")
    assert wrong == []


def tables(document: str, section: str) -> list[list[list[str]]]:
    text = re.split(rf"^#+ {re.escape(section)}[. ].*$", DOCUMENTS[document], maxsplit=1, flags=re.MULTILINE)[1]
    text = re.split(r"^#+ ", text, maxsplit=1, flags=re.MULTILINE)[0]
    blocks = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    rows = [[[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()] for block in blocks]
    return [[table[0], *table[2:]] for table in rows]


TABLES_OF_BYTES = [
    ("store-format", "2.9", 0, message_layout.INNER_HEAD),
    ("store-format", "3.4", 1, index_file.HEADER),
    ("store-format", "3.4", 2, index_file.ENTRY),
    ("store-format", "5.1", 0, consume_queue.UNIT),
    ("store-format", "5.7", 0, consume_queue_ext.HEAD),
    ("store-format", "5.8", 0, batch_consume_queue.UNIT),
    ("store-format", "6.1", 0, checkpoint.CHECKPOINT),
    ("store-format", "9.2", 0, rocksdb_config.KEY),
    ("store-format", "9.2", 1, rocksdb_config.DATA_VERSION),
    ("other-formats", "1", 0, dledger.DLEDGER_HEAD),
    ("other-formats", "1", 1, dledger.INDEX_UNIT),
    ("other-formats", "5", 0, timer_log.TIMER_UNIT),
    ("other-formats", "5", 1, timer_check.TIMER_CHECK),
    ("remoting-protocol", "1.1", 0, PREFIX),
    ("remoting-protocol", "1.3", 0, header_oracle.FIXED),
    ("remoting-protocol", "8.1", 0, message_id.V4_MESSAGE_ID),
]


@pytest.mark.parametrize(("document", "section", "number", "layout"), TABLES_OF_BYTES)
def test_the_tables_of_bytes_are_those_that_are_read(document, section, number, layout) -> None:
    heading, *rows = tables(document, section)[number]
    column = heading.index("off")
    read = {offset: f"{size} bytes" if kind == "bytes" else kind for offset, size, kind in tiles_of(layout)}
    written = {}
    for row in rows:
        kind = re.match(r"(?:[iu](?:8|16|32|64)|\d+ bytes)\b", (row if "type" in heading else heading)[column + 1])
        if row[column].isdigit() and kind:
            written[int(row[column])] = kind[0]
    assert written == read
