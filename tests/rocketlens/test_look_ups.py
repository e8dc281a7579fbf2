"""What the public face answers, from a store, over the wire and as Arrow batches."""

import functools
import shutil
import warnings
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
import pytest

import oracles
import rocketlens
from golden_store import G1
from spark_jobs.export.export_formats import ParquetPart
from spark_jobs.read.log_ranges import find_ranges
from spark_jobs.read.read_range import RangeReader
from storage.columns.names import KINDS
from storage.columns.wanted import Wanted

Source = rocketlens.Store | rocketlens.RemoteStore


class Produced(NamedTuple):
    unique_key: str
    offset_message_id: str
    topic: str
    queue_id: int
    queue_offset: int
    keys: list[str]
    tags: str | None


def produced() -> list[Produced]:
    lines = [line.split("\t") for line in (G1 / "produced.tsv").read_text().splitlines()]
    rows = [line for line in lines if len(line) == 9 and line[0] not in ("delay", "txc", "txr")]
    found = [Produced(*row[2:5], int(row[5]), int(row[6]), _keys(row[7]), _text(row[8])) for row in rows]
    assert len(found) > 15
    return found


def _text(text: str) -> str | None:
    return None if text == "null" else text


def _keys(text: str) -> list[str]:
    return [] if text == "null" else text.split()


def body_hash(body: bytes) -> int:
    """Java's `Arrays.hashCode`, which the recorded consumers printed."""
    value = functools.reduce(lambda hashed, byte: (31 * hashed + (byte ^ 0x80) - 0x80) & 0xFFFFFFFF, body, 1)
    return (value ^ 1 << 31) - (1 << 31)


def pull_all(source, topic, queue_id, **options):
    offset, end = 0, 1
    while offset < end:
        found = source.pull(topic, queue_id, offset, maximum=5, **options)
        yield from found
        assert found.next_offset > offset
        offset, end = found.next_offset, found.max_offset


def test_every_message_that_was_produced_is_found_by_each_of_its_ids(source: Source) -> None:
    for sent in produced():
        by_unique_key = source.view(sent.unique_key, topic=sent.topic)
        (found,) = by_unique_key
        told = found.offset_message_id, found.topic, found.queue_id, found.queue_offset, found.keys, found.tags
        assert told == sent[1:]
        assert found.message_id == sent.unique_key
        assert tuple(source.view(sent.offset_message_id)) == tuple(source.view(found.physical_offset)) == (found,)


@pytest.mark.parametrize(
    ("recorded", "options"),
    [
        ("consumed-tag.tsv", {"tag": "TagA || Aa"}),
        ("consumed-sql.tsv", {"sql": "a > 10 AND a <= 30 AND region = 'hz'"}),
    ],
)
def test_a_pull_brings_what_the_recorded_consumer_got(source: Source, recorded: str, options: dict[str, str]) -> None:
    lines = [line.split("\t") for line in (G1 / recorded).read_text().splitlines()]
    rows = [line[1:] for line in lines if line[0] == "MSG"]
    expected = {(row[0], *map(int, row[1:3]), *row[3:5], _text(row[5]), *map(int, row[7:9])) for row in rows}
    assert len(expected) == int(lines[0][1]) > 4
    found = {
        (
            *(message.topic, message.queue_id, message.queue_offset, message.unique_key, message.offset_message_id),
            *(message.tags, len(message.body), body_hash(message.body)),
        )
        for queue_id in range(4)
        for message in pull_all(source, "TopicTest", queue_id, **options)
    }
    assert found == expected


def test_nothing_found_says_why(source: Source) -> None:
    for found in (
        source.query("TopicTest", key="nosuchkey"), source.query("NoSuchTopic", key="a"), source.view(1),
        source.view("nobody"), source.pull("TopicTest", 0, 10_000), source.pull("TopicTest", 99, 0),
        source.pull("NoSuchTopic", 0, 0)
    ):  # fmt: skip
        assert not found
        assert len(found.reason) > 20
    found = source.query("TopicTest", key="hotkey")
    assert found.reason == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "exactly one of key, unique_key and tag"),
        ({"key": "a", "tag": "b"}, "exactly one of"),
        ({"key": "a", "begin": 5, "end": 1}, "begin 5 is after end 1"),
        ({"key": "a", "begin": "soon"}, "neither milliseconds nor a time"),
        ({"key": "a", "maximum": 0}, "maximum 0: expected 1 or more"),
        ({"key": "a", "cursor": -1}, "cursor -1: expected the cursor of an earlier answer"),
    ],
)
def test_a_question_that_cannot_be_is_an_error(source: Source, arguments: dict[str, object], says: str) -> None:
    with pytest.raises(rocketlens.ConfigError, match=says):
        source.query("TopicTest", **arguments)


def test_what_is_closed_says_so(g1_store: Path) -> None:
    for closed in (rocketlens.open(g1_store), rocketlens.connect("127.0.0.1:1")):
        closed.close()
        closed.close()
        with pytest.raises(rocketlens.Error, match="is closed"):
            closed.view(0)
        with pytest.raises(rocketlens.Error, match="is closed"):
            closed.topics()


def parquet_of(store, path):
    with path.open("wb") as file:
        writer = ParquetPart(file, tuple(KINDS), "zstd")
        for each in find_ranges(str(store)).ranges:
            for columns in RangeReader(each, Wanted(), tuple(KINDS)).read():
                writer.write(columns)
        writer.close()
    return pq.read_table(path)


def test_schema_and_rows_are_those_of_the_parquet_export(g1_store: Path, tmp_path: Path) -> None:
    exported = parquet_of(g1_store, tmp_path / "part.parquet")
    table = rocketlens.arrow(g1_store).read_all()
    assert table.schema.names == exported.schema.names == list(KINDS)
    assert [field.type for field in table.schema] == [field.type for field in exported.schema]
    assert table.to_pylist() == exported.to_pylist()
    assert table.num_rows == len(oracles.read_log(g1_store / "commitlog")) > 300


def test_damage_is_left_out_with_a_warning_or_is_an_error(g1_store: Path, tmp_path: Path) -> None:
    store = Path(shutil.copytree(g1_store, tmp_path / "store"))
    with (store / "commitlog" / f"{0:020}").open("r+b") as segment:
        segment.seek(6581 + 100)
        segment.write(b"damage")
    with pytest.warns(rocketlens.DamageWarning, match="physical offset 6581") as warned:
        table = rocketlens.arrow(store, columns=["physical_offset"]).read_all()
    assert len(warned) == 1
    whole = {record.physical_offset for record in oracles.read_log(g1_store / "commitlog")}
    assert whole - set(table["physical_offset"].to_pylist()) == {6581}
    with warnings.catch_warnings(), pytest.raises(rocketlens.CorruptRecord):
        rocketlens.arrow(store, columns=["physical_offset"], fails_fast=True).read_all()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"columns": ["nothing"]}, rocketlens.ConfigError),
        ({"columns": ["topic", "topic"]}, rocketlens.ConfigError),
        ({"begin": 5, "end": 1}, rocketlens.ConfigError),
        ({"where": "a >"}, rocketlens.FilterSyntaxError),
        ({"topic": []}, rocketlens.ConfigError),
    ],
)
def test_arguments_that_cannot_be_are_errors_at_once(g1_store, options, error) -> None:
    with pytest.raises(error):
        rocketlens.arrow(g1_store, **options)
