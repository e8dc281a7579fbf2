"""Queues with much damage: whatever a verification keeps in memory, each unit that is wrong is named, and no other."""

import random
from collections import Counter

import pytest

from storage.doctor.finding import Kind
from storage.doctor.queues import _diagnose_queue, queue_files
from store_writer import StoreWriter
from verifying import assert_clean, findings_of, told, verify_here

UNITS_A_FILE = 3000
MESSAGES = 8000


@pytest.fixture(params=[100, pytest.param(1 << 16, marks=pytest.mark.soak)], autouse=True)
def piece(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_diagnose_queue, "PIECE", request.param)
    monkeypatch.setattr(queue_files, "KEPT_IN_A_FILE", request.param)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> StoreWriter:
    """A queue of 8,000 messages in three files, and another one among whose messages they lie.

    The first has a key and a tag, else each verification looks for the first ones in all of the log.
    """
    with StoreWriter(
        tmp_path_factory.mktemp("good"), segment_size=1 << 18, queue_file_size=20 * UNITS_A_FILE
    ) as writer:
        for number in range(MESSAGES):
            writer.append("T", b"", keys=None if number else "first", tags=None if number else "first")
            if not number % 7:
                writer.append("T", b"", queue_id=1)
    return writer


class Units:
    """The units of queue 0 while they are damaged; put back afterwards."""

    def __init__(self, root) -> None:
        self._paths = sorted((root / "consumequeue" / "T" / "0").iterdir())
        self._before = [path.read_bytes() for path in self._paths]
        self.data = bytearray(b"".join(self._before))

    def part(self, first: int, stop: int) -> bytes:
        return bytes(self.data[20 * first : 20 * stop])

    def put(self, first: int, data: bytes) -> None:
        self.data[20 * first : 20 * first + len(data)] = data
        size = 20 * UNITS_A_FILE
        self._write([bytes(self.data[at : at + size]) for at in range(0, len(self.data), size)])

    def restore(self) -> None:
        self._write(self._before)

    def lose(self, first: int, count: int) -> None:
        """The messages from one on have no units: all behind stand so much before their places."""
        self.put(first, self.part(first + count, MESSAGES) + bytes(20 * count))

    def _write(self, contents: list[bytes]) -> None:
        for path, content in zip(self._paths, contents, strict=True):
            path.write_bytes(content)


@pytest.fixture
def units(good):
    units = Units(good.root)
    yield units
    units.restore()


def backward(data: bytes) -> bytes:
    """Units in the opposite order: each leads to a message of its queue, and but one not to its own."""
    return b"".join(data[at : at + 20] for at in range(len(data) - 20, -1, -20))


def garbage(data: bytes) -> bytes:
    return random.Random(len(data)).randbytes(len(data))


def places(report, kind):
    """The units that findings of a kind name."""
    named: set[int] = set()
    for finding in findings_of(report):
        if finding.kind == kind:
            words = [int(word) for word in finding.place.split() if word.isdigit()]
            named.update(range(words[0], words[-1] + 1))
    return named


@pytest.mark.parametrize(("kind", "is_shifted"), [("zeros", False), ("garbage", True), ("backward", True)])
@pytest.mark.parametrize("count", [205, pytest.param(5000, marks=pytest.mark.soak)])
def test_every_damaged_unit_is_named_and_no_other(is_shifted, kind, count, good, units, tmp_path) -> None:
    """However many there are, whatever they lead to, also where a unit that is missing has moved all behind it."""
    if is_shifted:
        units.lose(500, 1)
    whole = units.part(1000, 1000 + count)
    damaged = {"zeros": bytes(len(whole)), "garbage": garbage(whole), "backward": backward(whole)}[kind]
    units.put(1000, damaged)
    report = verify_here(good.root, tmp_path / "work")
    wrong = {1000 + at // 20 for at in range(0, len(whole), 20) if damaged[at : at + 20] != whole[at : at + 20]}
    assert places(report, Kind.UNIT) == wrong, told(report)[:2000]
    others = Counter(finding.kind for finding in findings_of(report) if finding.kind != Kind.UNIT)
    assert others == (Counter({Kind.MISSING_UNIT: 1, Kind.SHIFTED_UNIT: 1}) if is_shifted else Counter())


@pytest.mark.parametrize("count", [1, 5000])
def test_all_messages_without_units_are_counted(count, good, units, tmp_path) -> None:
    units.lose(1000, count)
    findings = findings_of(verify_here(good.root, tmp_path / "work"))
    assert {finding.kind for finding in findings} == {Kind.MISSING_UNIT, Kind.SHIFTED_UNIT}
    missing = [finding for finding in findings if finding.kind == Kind.MISSING_UNIT]
    assert sum(finding.count for finding in missing) == count
    assert missing[0].physical_offset == good.written[1000 + 1000 // 7 + 1].physical_offset


def test_an_earlier_life_of_any_length_is_nothing_wrong(tmp_path) -> None:
    with StoreWriter(tmp_path / "store", queue_file_size=2000) as writer:
        for _ in range(300):
            writer.append("T")
        del writer.queues["T", 0]
        for number in range(120):
            writer.append("T", queue_offset=number)
    report = verify_here(writer.root, tmp_path / "work")
    assert_clean(report)
    assert (report.details.queues.earlier_life, report.details.queues.matched) == (300, 120)
