"""The doctor on the files of queues and on what lies behind a queue's end."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from doctoring import findings_of, make_store, only, put
from storage.doctor.examine import examine
from storage.doctor.finding import Kind, Severity
from storage.queue import queue_holes
from storage.queue.batch_consume_queue import UNIT_DTYPE as BATCH_UNIT_DTYPE
from store_writer import StoreWriter

UNIT = 20
FILE = 1000


@pytest.fixture
def queue(root: Path) -> Path:
    return root / "consumequeue" / "T" / "1"


def test_a_missing_file_is_a_gap_of_queue_offsets(root: Path, queue: Path) -> None:
    (queue / f"{FILE:020d}").unlink()
    finding = only(root, "queues")
    assert (finding.path, finding.what) == (
        str(queue),
        "expected a file that holds queue offsets 50 to 99, found none",
    )
    assert finding.meaning == "their messages are looked for in the log; a broker gives them to no consumer"


@pytest.mark.parametrize("size", [0, 39, 980])
def test_a_file_of_another_size_is_named_where_it_ends(root: Path, queue: Path, size: int) -> None:
    with (queue / f"{FILE:020d}").open("r+b") as file:
        file.truncate(size)
    findings = findings_of(examine(root), "queues", Severity.WARNING)
    assert [(finding.path, finding.position) for finding in findings] == [(str(queue / f"{FILE:020d}"), size)]


def test_units_behind_the_end_that_are_no_messages_are_left_over(tmp_path: Path) -> None:
    writer, _ = make_store(tmp_path, 90)
    writer.close()
    queue = tmp_path / "consumequeue" / "T" / "1"
    phantom = (10**9).to_bytes(8, "big") + (100).to_bytes(4, "big") + bytes(8)
    put(queue / f"{0:020d}", 45 * UNIT, phantom)
    finding = only(tmp_path, "queues")
    assert (finding.severity, finding.path, finding.position) == (
        Severity.WARNING,
        str(queue / f"{0:020d}"),
        45 * UNIT,
    )
    assert (finding.physical_offset, finding.remedy) == (10**9, f"rocketlens rebuild queues {tmp_path}")


@pytest.mark.parametrize("data", [b"\xff" * UNIT, bytes(UNIT * 3)])
def test_units_that_are_lost_inside_the_queue_are_named(root: Path, queue: Path, data: bytes) -> None:
    put(queue / f"{3 * FILE:020d}", 10 * UNIT, data)
    finding = only(root, "queues")
    assert finding.severity is Severity.ERROR
    assert (finding.path, finding.position) == (str(queue / f"{3 * FILE:020d}"), 10 * UNIT)
    count = len(data) // UNIT
    assert (finding.kind, finding.count, finding.found) == (Kind.UNIT, count, "bytes that are no units")
    units = ("unit 160", "units of 1 message") if count == 1 else ("units 160 to 162", "units of 3 messages")
    assert (finding.place, finding.expected) == units


def test_a_damaged_end_is_named_though_much_of_the_log_would_have_to_be_read(
    root: Path, queue: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_holes, "SEARCHED_AT_ONCE", 1)
    units = (queue / f"{3 * FILE:020d}").read_bytes().rstrip(b"\0")
    last = (len(units) - 1) // UNIT
    put(queue / f"{3 * FILE:020d}", last * UNIT, b"\xff" * UNIT)
    found = {each.kind: each for each in findings_of(examine(root), "queues") if each.path.startswith(str(queue))}
    assert found.keys() == {Kind.UNIT, Kind.NOT_COMPARED}
    assert (found[Kind.UNIT].position, found[Kind.UNIT].count) == (last * UNIT, 1)
    assert found[Kind.NOT_COMPARED].remedy == f"rocketlens doctor --deep {root}"


def test_an_empty_last_file_is_removed_for_old_brokers_since_the_others_delete_it(root: Path, queue: Path) -> None:
    last = sorted(queue.iterdir())[-1]
    (queue / f"{int(last.name) + FILE:020d}").write_bytes(b"")
    assert findings_of(examine(root), "queues") == []
    note = only(root, "next-start")
    assert (note.severity, note.remedy) == (Severity.INFO, f"rm {note.path}")
    assert note.found.startswith("a broker 4.x does not start on this store: ")


def test_a_foreign_file_is_moved_out_of_the_store_by_what_is_advised(root: Path, queue: Path) -> None:
    (queue / "notes").write_text("x")
    finding = only(root, "queues")
    subprocess.run(["bash", "-c", finding.remedy], check=True)
    assert (root.with_name("store-set-aside") / "consumequeue" / "T" / "1" / "notes").read_text() == "x"
    assert examine(root).findings == ()
    (queue / "notes").write_text("another")
    subprocess.run(["bash", "-c", only(root, "queues").remedy], check=True)
    assert examine(root).findings == ()


def test_a_file_in_the_place_of_all_queues_is_moved_away_before_they_are_built(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")
    (root / "consumequeue").write_text("x")
    remedies = {each.remedy for each in examine(root).findings}
    place = root.with_name("store-set-aside")
    assert remedies == {
        f"mkdir -p {place} && mv -T {root}/consumequeue {place}/consumequeue && rocketlens rebuild queues {root}"
    }


@pytest.mark.parametrize(
    ("field", "number"), [("physical_offset", 0), ("size", 7), ("base_offset", 19), ("batch_size", 8)]
)
def test_a_unit_of_a_batch_that_cannot_be_right_is_named(tmp_path: Path, field: str, number: int) -> None:
    writer = StoreWriter(tmp_path, batch_queue_file_size=46 * 8)
    for _ in range(20):
        writer.append_inner_batch("B", [(b"one", {}), (b"two", {})])
    writer.close()
    assert findings_of(examine(tmp_path), "queues") == []
    path = tmp_path / "batchconsumequeue" / "B" / "0" / f"{46 * 8 * (number // 8):020d}"
    position = 46 * (number % 8)
    content = np.frombuffer(bytearray(path.read_bytes()), BATCH_UNIT_DTYPE)
    content[field][number % 8] = -3
    path.write_bytes(content.tobytes())
    finding = only(tmp_path, "queues")
    assert (finding.kind, finding.severity, finding.path) == (Kind.UNIT, Severity.ERROR, str(path))
    assert (finding.place, finding.position) == (f"unit {number}", position)
    assert finding.remedy == f"rocketlens rebuild queues {tmp_path}"


def test_a_unit_that_stands_in_for_a_lost_batch_is_none_that_is_wrong(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path)
    writer.append("T", b"plain")
    written = [writer.append_inner_batch("B", [(b"one", {}), (b"two", {})]) for _ in range(5)]
    writer.close()
    writer.overwrite(written[2].physical_offset, bytes(written[2].size))
    (path,) = (tmp_path / "batchconsumequeue" / "B" / "0").iterdir()
    units = np.frombuffer(bytearray(path.read_bytes()), BATCH_UNIT_DTYPE)
    for field in ("physical_offset", "size", "tags_code", "store_timestamp"):
        units[field][2] = units[field][3]  # as a rebuild does it: the base offset is that of the lost batch
    path.write_bytes(units.tobytes())
    assert findings_of(examine(tmp_path), "queues") == []
