"""Exports of tiered files: each message once, as the broker delivered it, and what is missing is named."""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

import oracles
from column_rows import expected_rows
from exported_files import Row, manifest_of, read_back
from golden_store import GOLDEN, unpack
from protocol.errors import ConfigError
from spark_jobs.export.export import run_export
from spark_jobs.export.export_request import ExportRequest
from spark_jobs.read._stream_reader import MessageStreamReader
from spark_jobs.read.data_source import check_schema, reader_of, schema_of
from spark_jobs.read.source_options import read_options
from spark_jobs.run.progress import Silence
from store_kinds import tier_name, write_tier
from store_writer import StoreWriter
from tier_answers import exchanges_of, pulls_of


def export(tier, out, format_="ndjson", topics=()):
    return run_export(ExportRequest(store=str(tier), out=str(out), format=format_, topics=topics), Silence())


def without_place(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != "physical_offset"}


def by_offset(rows: list[Row]) -> dict[tuple[str, int, int], Row]:
    found = {(row["topic"], row["queue_id"], row["queue_offset"]): row for row in rows}
    assert len(found) == len(rows)
    return found


def records_of(tier: Path) -> list[oracles.Record]:
    found = []
    for directory in tier.glob("*/*/*/*/COMMIT_LOG"):
        for path in sorted(directory.iterdir(), key=lambda path: path.name[8:]):
            found += oracles.scan_segment(path.read_bytes(), int(path.name[8:]))
    return found


@pytest.mark.parametrize("name", ["g2-tier", "g2-tier-killed"])
@pytest.mark.parametrize("has_metadata", [True, False])
def test_an_export_of_a_recorded_tier_has_the_messages_that_its_broker_delivered(tmp_path, name, has_metadata) -> None:
    root = unpack("store", tmp_path / name, archives=GOLDEN / "g2" / name)
    tier = root / json.loads((GOLDEN / "g2" / name / "store.json").read_text())["tier"]
    if has_metadata:
        shutil.copy(root / "config" / "tieredStoreMetadata.json", tier)
    report = export(tier, tmp_path / "out", "parquet" if has_metadata else "csv")
    assert (report.exit_code, report.damages) == (0, [])
    found = by_offset(read_back(tmp_path / "out"))
    everything = by_offset(expected_rows(records_of(tier)))
    assert len(found) > 100
    assert found == everything
    delivered = [
        oracles.read_record(record, 0)
        for (_, _, kind, expression), records in pulls_of(exchanges_of(name)).items()
        if (kind, expression) == ("TAG", "*")
        for record in records
    ]
    recorded = by_offset(expected_rows([record for record in delivered if record is not None]))
    for key, row in found.items():
        assert without_place(row) == without_place(recorded[key])
    queues = {(topic, queue_id) for topic, queue_id, _ in found}
    for topic, queue_id in queues:  # from the first one on, without a gap
        offsets = sorted(offset for *queue, offset in found if queue == [topic, queue_id])
        assert offsets == list(range(len(offsets)))
    manifest = manifest_of(tmp_path / "out")
    assert {part["queue"] for part in manifest["parts"]} == {f"{topic}/{queue_id}" for topic, queue_id in queues}
    assert manifest["tier"] == {"broker": "broker-a", "queues": len(queues)}


@dataclass(frozen=True)
class Made:
    """A tier of two topics, and the rows that an export of it must have."""

    root: Path
    broker: Path
    rows: list[Row]

    def log(self, queue: str) -> list[Path]:
        return sorted((self.broker / queue / "COMMIT_LOG").iterdir(), key=lambda path: path.name[8:])

    def rows_of(self, topic: str) -> list[Row]:
        return [row for row in self.rows if row["topic"] == topic]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    with StoreWriter(tmp_path / "store") as writer:
        for number in range(90):
            named = {"queue_id": number % 3, "unique_key": f"U{number}", "keys": f"k{number}", "tags": "A"}
            writer.append(("Orders", "Payments")[number % 2], b"x" * number, **named)
    broker = write_tier(tmp_path / "tier", writer.written, segment_bytes=1000)
    return Made(tmp_path / "tier", broker, expected_rows(records_of(tmp_path / "tier")))


def test_a_missing_file_a_cut_one_and_units_without_records_are_damage_and_the_rest_is_exported(made, tmp_path) -> None:
    missing = made.log("Orders/0")[1]
    cut = made.log("Orders/1")[-1]
    half = made.broker / "Payments" / "0" / "COMMIT_LOG"
    lost = list(oracles.scan_segment(missing.read_bytes(), int(missing.name[8:])))
    last = list(oracles.scan_segment(cut.read_bytes(), int(cut.name[8:])))[-1]
    end = cut.stat().st_size
    missing.unlink()
    os.truncate(cut, end - 5)
    shutil.rmtree(half)
    (made.broker / "Payments" / "1" / "CONSUME_QUEUE").rename(tmp_path / "units")
    report = export(made.root, tmp_path / "out")
    gone = {("Orders", 0, record.queue_offset) for record in lost} | {("Orders", 1, last.queue_offset)}
    expected = {key: row for key, row in by_offset(made.rows).items() if key not in gone and key[:2] != ("Payments", 0)}
    assert len(lost) > 1
    assert by_offset(read_back(tmp_path / "out")) == expected
    assert report.exit_code == 4
    damages = {damage.path: damage for damage in report.damages}
    assert set(damages) == {str(missing.parent), str(cut), str(half)}
    hole = damages[str(missing.parent)]
    assert (hole.physical_offset, hole.length) == (lost[0].physical_offset, sum(each.total_size for each in lost))
    assert damages[str(cut)].physical_offset == last.physical_offset
    assert "the queue has units" in damages[str(half)].found


def test_files_that_only_the_metadata_names_are_damage_and_so_is_metadata_that_cannot_be_read(made, tmp_path) -> None:
    first, *_, last = made.log("Orders/0")
    size, base = last.stat().st_size, int(last.name[8:])
    segments = {
        str(int(path.name[8:])): {"baseOffset": int(path.name[8:]), "size": path.stat().st_size, "status": 0}
        for path in made.log("Orders/0")
    }
    metadata = made.broker.parent.parent / "tieredStoreMetadata.json"
    metadata.write_text(json.dumps({"commitLogFileSegmentTable": {"broker-a/Orders/0": segments}}))
    assert export(made.root, tmp_path / "whole").exit_code == 0
    last.unlink()
    report = export(made.root, tmp_path / "cut")
    assert report.exit_code == 4
    assert [(each.path, each.physical_offset, each.length) for each in report.damages] == [(str(last), base, size)]
    assert first.name == tier_name(0)
    metadata.write_text("{")
    (damage,) = export(made.root, tmp_path / "damaged").damages
    assert damage.path == str(metadata)
    assert "files that the tier lacks are not noticed" in damage.found


def test_the_data_source_reads_a_tier_as_a_batch_and_refuses_to_follow_it(made: Made) -> None:
    options = read_options({"path": str(made.root), "topic": "Orders", "columns": "queue_id,queue_offset,body"})
    reader = reader_of(options, schema_of(options))
    batches = [batch for each in reader.partitions() for batch in reader.read(each)]
    found = by_offset([row | {"topic": "Orders"} for batch in batches for row in batch.to_pylist()])
    assert len(found) == 45
    assert {key: row["body"] for key, row in found.items()} == {
        key: row["body"] for key, row in by_offset(made.rows_of("Orders")).items()
    }
    stream = MessageStreamReader(options, check_schema(schema_of(options)))
    with pytest.raises(ConfigError, match="not as a stream"):
        stream.initialOffset()
