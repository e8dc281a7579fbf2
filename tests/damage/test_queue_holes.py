"""Queues of which units or files are gone, drained by a consumer: every message that the log has arrives, in order."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from asking import Asker
from doctoring import put
from draining import FOUND, drain, pull_of, records_of
from protocol.codes import RequestCode
from store_writer import StoreWriter, Written

TAGS = ("A", "B", "C")
UNITS_A_FILE = 1000
"""Units of which a page of the disk holds a part: 205 whole ones, or two cut ones more."""

MESSAGES, BATCHES = 8200, 240


@dataclass
class Made:
    """The store of the trial and what its queues hold: of each message the tag and the number."""

    root: Path
    plain: list[Written] = field(default_factory=list)
    light: list[Written] = field(default_factory=list)
    batches: list[Written] = field(default_factory=list)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A topic with messages of other queues between its own, every fifth in a light queue too, and one of batches."""
    root = tmp_path_factory.mktemp("holes") / "store"
    writer = StoreWriter(
        root,
        segment_size=1 << 20,
        queue_file_size=20 * UNITS_A_FILE,
        batch_queue_file_size=46 * 40,
        index_entries=10**6,
    )
    found = Made(root)
    for number in range(MESSAGES):
        properties = {"number": str(number)}
        if not number % 5:
            properties |= {"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": str(number // 5)}
        written = writer.append("T", b"", tags=TAGS[number % 3], properties=properties, index=False)
        found.plain.append(written)
        if not number % 5:
            found.light.append(written)
        if not number % 8:
            writer.append("T", b"other", queue_id=1, tags="A", index=False)
        if number % 30 == 7 and len(found.batches) < BATCHES:
            inner = [(b"", {})] * (1 + number % 4)
            found.batches.append(writer.append_inner_batch("B", inner, index=False))
    writer.close()
    return found


Damage = Callable[[Path], None]


def units(first: int, count: int, content: bytes) -> Damage:
    """Other bytes in the place of so many units of 20 bytes, from one on; across files."""

    def damage(directory: Path) -> None:
        for number in range(first, first + count):
            path = directory / f"{number // UNITS_A_FILE * UNITS_A_FILE * 20:020d}"
            put(path, number % UNITS_A_FILE * 20, content)

    return damage


def zero_page(directory: Path) -> None:
    put(directory / f"{0:020d}", 4096, bytes(4096))


def lose(*numbers: int, size: int = UNITS_A_FILE * 20) -> Damage:
    """Files of a queue that are gone, by their numbers."""

    def damage(directory: Path) -> None:
        for number in numbers:
            (directory / f"{number * size:020d}").unlink()

    return damage


def several(*damages: Damage) -> Damage:
    def damage(directory: Path) -> None:
        for each in damages:
            each(directory)

    return damage


def other_queue(directory: Path) -> None:
    """A page of another queue's units in the place of a page of this one."""
    page = (directory.parent / "1" / f"{0:020d}").read_bytes()[:4096]
    put(directory / f"{UNITS_A_FILE * 20:020d}", 4000, page)


def cut(directory: Path) -> None:
    with (directory / f"{2 * UNITS_A_FILE * 20:020d}").open("r+b") as file:
        file.truncate(305 * 20 + 7)


def cut_to_nothing(directory: Path) -> None:
    for path in directory.iterdir():
        path.write_bytes(b"")


def zero_files(directory: Path) -> None:
    for path in directory.iterdir():
        path.write_bytes(bytes(path.stat().st_size))


ZEROS, ONES, SEVENS, FAR = (
    bytes(20),
    b"\xff" * 20,
    b"\x7f" * 20,
    (1 << 50).to_bytes(8, "big") + bytes([0, 0, 0, 99] * 3),
)

DAMAGES: dict[str, Damage] = {
    "one zero unit": units(410, 1, ZEROS),
    "a zero page": zero_page,
    "65 units": units(900, 65, ZEROS),
    "100 units across files": units(1950, 100, SEVENS),
    "100 units that point beyond the log": units(300, 100, FAR),
    "4096 units": units(410, 4096, ZEROS),
    "4096 units of ones": units(410, 4096, ONES),
    "a lost file": lose(2),
    "lost files and a page": several(lose(1, 2, 4), zero_page),
    "a file that was cut": cut,
    "the first units": units(0, 70, ONES),
    "the last units": units(MESSAGES - 10, 10, SEVENS),
    "several holes in one pull": several(*(units(100 + 20 * n, 1 + n, (ZEROS, SEVENS)[n % 2]) for n in range(10))),
    "a page of another queue": other_queue,
    "the first file lost": lose(0),
    "the first files lost": lose(0, 1, 2),
    "the first file lost, and damage behind it": several(lose(0), units(1000, 70, ONES)),
    "the last file lost": lose(8),
    "the last files lost": lose(5, 6, 7, 8),
    "the first and the last file lost": lose(0, 8),
    "all files but one lost": lose(0, 1, 2, 3, 5, 6, 7, 8),
    "all files lost": lose(*range(9)),
    "all files empty": cut_to_nothing,
    "all files zero": zero_files,
    "a lost file behind damage": several(units(990, 10, ZEROS), lose(1), units(2000, 70, ONES)),
}

CHOICES = {
    "*": ("*", "TAG", lambda _number: True),
    "tags": ("A || C", "TAG", lambda number: number % 3 != 1),
    "sql": ("number BETWEEN 900 AND 4000 AND TAGS = 'B'", "SQL92", lambda n: 900 <= n <= 4000 and n % 3 == 1),
}


@pytest.fixture
def copied(made: Made, tmp_path: Path) -> Path:
    """A copy whose queues a test may damage; the log is the same one."""
    shutil.copytree(made.root, tmp_path / "store", ignore=shutil.ignore_patterns("commitlog"))
    (tmp_path / "store" / "commitlog").symlink_to(made.root / "commitlog")
    return tmp_path / "store"


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(name, marks=[pytest.mark.soak] if number % 3 else [])
        for number, name in enumerate(reversed(DAMAGES))
    ],
)
def test_every_message_of_a_damaged_queue_arrives_in_order(damage: str, made: Made, copied: Path) -> None:
    DAMAGES[damage](copied / "consumequeue" / "T" / "0")
    asker = Asker(copied)
    for text, kind, chooses in CHOICES.values():
        drained = drain(asker.ask, "T", subscription=text, kind=kind)
        expected = [written for number, written in enumerate(made.plain) if chooses(number)]
        assert drained.places == [written.physical_offset for written in expected], (damage, text)
        assert not any("lost" in remark for remark in drained.remarks)


LIGHT_DAMAGES = [units(300, 205, ZEROS), units(300, 900, SEVENS), lose(0), lose(1), lose(0, 1), zero_files]


@pytest.mark.parametrize("damage", LIGHT_DAMAGES)
def test_every_message_of_a_damaged_light_queue_arrives(damage: Damage, made: Made, copied: Path) -> None:
    damage(copied / "consumequeue" / "%LMQ%a" / "0")
    assert drain(Asker(copied).ask, "%LMQ%a").places == [written.physical_offset for written in made.light]


@pytest.mark.parametrize(
    "damage",
    [
        lose(2, size=46 * 40),
        lose(1, 2, 4, size=46 * 40),
        lose(0, size=46 * 40),
        lose(5, size=46 * 40),
        lose(0, 1, 4, 5, size=46 * 40),
        lose(*range(6), size=46 * 40),
        zero_files,
        lambda directory: put(directory / f"{5 * 46 * 40:020d}", 46 * 3, bytes(46 * 20)),
        lambda directory: put(directory / f"{4 * 46 * 40:020d}", 46 * 30, b"\x7f" * 46 * 10),
        lambda directory: put(directory / f"{3 * 46 * 40:020d}", 46 * 3 + 36, b"\x00\x09"),
    ],
)
def test_every_batch_of_a_damaged_queue_arrives(damage: Damage, made: Made, copied: Path) -> None:
    damage(copied / "batchconsumequeue" / "B" / "0")
    drained = drain(Asker(copied).ask, "B")
    assert drained.places == [written.physical_offset for written in made.batches]


def test_what_is_nowhere_is_counted_in_the_answer_that_passes_it(made: Made, tmp_path: Path) -> None:
    root = shutil.copytree(made.root, tmp_path / "store")
    units(400, 300, ZEROS)(root / "consumequeue" / "T" / "0")
    gone = [*range(450, 470), 600]
    for number in gone:
        written = made.plain[number]
        path = root / "commitlog" / f"{written.physical_offset >> 20 << 20:020d}"
        put(path, written.physical_offset % (1 << 20), bytes(written.size))
    drained = drain(Asker(root).ask, "T")
    expected = [written.physical_offset for number, written in enumerate(made.plain) if number not in gone]
    assert drained.places == expected
    told = [remark.partition(": ")[2] for remark in drained.remarks if "lost" in remark]
    assert sum(int(remark.split()[0]) for remark in told) == len(gone)
    assert told[-1].startswith("1 message is lost at queue offset")


def test_a_pull_of_nothing_but_lost_messages_moves_on_and_says_so(made: Made, tmp_path: Path) -> None:
    root = shutil.copytree(made.root, tmp_path / "store")
    lose(1)(root / "consumequeue" / "T" / "0")
    for written in made.plain[1000:2000]:
        path = root / "commitlog" / f"{written.physical_offset >> 20 << 20:020d}"
        put(path, written.physical_offset % (1 << 20), bytes(written.size))
    answer = Asker(root).ask(RequestCode.PULL_MESSAGE, pull_of("T", 0, 1500, subscription="A"))
    assert answer.code == FOUND
    assert next(records_of(bytes(answer.body))).queue_offset == 2001
    assert answer.remark is not None
    assert "500 messages are lost at queue offsets 1500 to 1999" in answer.remark
