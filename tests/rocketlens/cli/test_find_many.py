"""`rocketlens find -f`: rows for each line, what is missing, formats, ends."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from base_directory import small_disk
from broker.endpoint import Endpoint
from command_line import rocketlens
from rocketlens.cli.find_many import PlainRows
from storage.columns.names import JSON_NAMES
from store_writer import START_TIMESTAMP, StoreWriter

OFFSET_ID = "7F00000100002A9F00000000000019B5"
UNIQUE_KEY = "FD000000000000000000000000000002708C30946E09687211CE0017"
HOT = 40


@pytest.fixture
def asked(tmp_path: Path) -> Path:
    file = tmp_path / "asked"
    file.write_text(f"nowhere\nhotkey\r\n\n  {UNIQUE_KEY}\t \nhotkey\n")
    return file


def test_every_line_has_its_rows_and_a_missing_one_says_so(g1_store: Path, asked: Path) -> None:
    outcome = rocketlens("find", g1_store, "-f", asked)
    assert outcome.code == 1
    assert outcome.errors == "rocketlens: 2 of 3 found; missing: nowhere\n"
    assert len(outcome.messages) == HOT + 1 + 1
    assert outcome.messages[-1] == {"query": "nowhere", "found": False}
    assert {(row["query"], row["foundBy"]) for row in outcome.messages[:-1]} == {
        ("hotkey", "key"),
        (UNIQUE_KEY, "unique key"),
    }
    whole = rocketlens("find", g1_store, "hotkey", "--as", "key", "--topic", "TopicTest", "--json").messages
    assert [row for row in outcome.messages if row["query"] == "hotkey"] == [
        {
            "query": "hotkey",
            "found": True,
            **{name: message[name] for name in message if name not in ("stage", "outcome")},
        }
        for message in reversed(whole)
    ]


@pytest.mark.parametrize("topic", ["TopicTst", "BulkTopic"])
def test_a_topic_narrows_many_texts_as_it_narrows_one(
    g1_store: Path, server: Endpoint, tmp_path: Path, topic: str
) -> None:
    """One that is nowhere is said, and an id of another topic's message names nothing."""
    asked = tmp_path / "ids"
    asked.write_text(f"{OFFSET_ID}\nhotkey\n")
    for where in (g1_store, server):
        many = rocketlens("find", where, "-f", asked, "--topic", topic)
        one = rocketlens("find", where, OFFSET_ID, "hotkey", "--topic", topic)
        assert [row["found"] for row in many.messages] == [False, False]
        assert (many.code, one.code, one.output) == (1, 1, b"")
        said = [line for line in one.errors.splitlines() if "there is no topic" in line][:1]
        assert many.errors.splitlines() == [*said, f"rocketlens: 0 of 2 found; missing: {OFFSET_ID}, hotkey"]
        assert said == (
            ["rocketlens: there is no topic TopicTst; did you mean TopicTest or TopicTx?"]
            if topic == "TopicTst"
            else []
        )


def test_parquet_holds_the_same_as_the_lines(g1_store: Path, asked: Path, tmp_path: Path) -> None:
    lines, table = tmp_path / "out.ndjson", tmp_path / "out.parquet"
    assert rocketlens("find", g1_store, "-f", asked, "--out", lines).code == 1
    assert rocketlens("find", g1_store, "-f", asked, "--out", table, "--format", "parquet").code == 1
    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    stored = pyarrow.parquet.read_table(table).to_pylist()
    assert len(stored) == len(rows)
    for row, kept in zip(rows[:-1], stored[:-1], strict=True):
        for column, name in JSON_NAMES.items() | {("found_by", "foundBy"), ("message_id", "messageId")}:
            if column not in ("store_timestamp", "born_timestamp", "properties", "body"):
                assert kept[column] == row.get(name), column
        assert (kept["query"], kept["found"]) == (row["query"], row["found"])
        assert dict(kept["properties"]) == row["properties"]
        assert kept["body"].decode() == row["body"]
        assert kept["store_timestamp"].timestamp() * 1000 == row["storeTimestamp"]
    assert (stored[-1]["query"], stored[-1]["found"], stored[-1]["message_id"]) == ("nowhere", False, None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["asked", "out.ndjson", "out.parquet"]


@pytest.mark.parametrize("output_format", ["json", "msgpack", "parquet"])
def test_a_file_without_room_is_told_and_not_left(
    g1_store: Path, asked: Path, tmp_path: Path, output_format: str
) -> None:
    with small_disk(tmp_path / "disk") as give:
        disk = give("size=8k")
        (disk / "full").write_bytes(bytes(8192))
        outcome = rocketlens("find", g1_store, "-f", asked, "--out", disk / "out", "--format", output_format)
        assert outcome.code == 2
        assert outcome.errors.endswith("No space left on device\n")
        assert os.listdir(disk) == ["full"]


def test_two_that_write_to_one_place_at_a_time_do_not_write_into_each_others_file(
    g1_store: Path, asked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, out = tmp_path / "alone", tmp_path / "out"
    assert rocketlens("find", g1_store, "-f", asked, "--out", alone).code == 1
    write, others = PlainRows.write, iter([1])

    def write_with_another_in_between(rows: PlainRows, some: Iterable[Mapping[str, Any]]) -> None:
        if next(others, None):
            write(rows, [{"query": "the first of the two is half done" * 1000}])
            assert rocketlens("find", g1_store, "-f", asked, "--out", out).code == 1
            assert out.read_bytes() == alone.read_bytes()
        write(rows, some)

    monkeypatch.setattr(PlainRows, "write", write_with_another_in_between)
    assert rocketlens("find", g1_store, "-f", asked, "--out", out, "--replace").code == 1
    assert len(out.read_bytes()) > len(alone.read_bytes())
    assert sorted(os.listdir(tmp_path)) == ["alone", "asked", "out"]


def test_times_that_no_timestamp_tells_are_null_in_parquet(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    for number, time in enumerate((START_TIMESTAMP, -1, 253_402_300_800_000, 2**63 - 1, -(2**63))):
        writer.append("T", b"x", unique_key=f"U{number}", born_timestamp=time)
    writer.close()
    (tmp_path / "asked").write_text("".join(f"U{number}\n" for number in range(5)))
    table = tmp_path / "out.parquet"
    assert rocketlens("find", writer.root, "-f", tmp_path / "asked", "--out", table, "--format", "parquet").code == 0
    times = pyarrow.parquet.read_table(table).column("born_timestamp").to_pylist()
    assert [time and round(time.timestamp() * 1000) for time in times] == [START_TIMESTAMP, -1, None, None, None]


@pytest.mark.parametrize(
    ("content", "arguments", "reason"),
    [
        (b"", (), "holds no line to look up"),
        (b"\n\r\n", (), "holds no line to look up"),
        (b"\xff\n", (), "is not UTF-8 text"),
        (b"k\n", ("--format", "parquet"), "--format parquet needs --out"),
        (b"k\n", ("--out", "/nonexistent/out"), "cannot be written"),
        (b"k\n", ("more",), "-f FILE takes the place of TEXT"),
        (b"k\n", ("--as", "tag"), "tags are found one by one"),
        (b"k\n", ("--format", "table"), "a --format for programs"),
        (b"k\n", ("--since", "2000"), "-f FILE takes --as, --topic"),
        (b"k\n", ("--limit", "5"), "-f FILE takes --as, --topic"),
    ],
)
def test_what_cannot_be_is_wrong_usage(
    g1_store: Path, asked: Path, content: bytes, arguments: tuple[str, ...], reason: str
) -> None:
    asked.write_bytes(content)
    outcome = rocketlens("find", g1_store, "-f", asked, *arguments)
    assert outcome.code == 2
    assert reason in outcome.errors


@pytest.mark.parametrize(("inside", "reason"), [(False, "is a directory"), (True, "lies inside the store")])
def test_nothing_is_written_into_a_store_nor_over_a_directory(
    g1_store: Path, asked: Path, tmp_path: Path, inside: bool, reason: str
) -> None:
    out = g1_store / "found" if inside else tmp_path
    before = sorted(g1_store.iterdir())
    outcome = rocketlens("find", g1_store, "-f", asked, "--out", out)
    assert outcome.code == 2
    assert reason in outcome.errors
    assert sorted(g1_store.iterdir()) == before


def test_a_file_that_is_there_is_replaced_only_when_asked_for_and_only_by_a_whole_one(
    g1_store: Path, asked: Path, tmp_path: Path
) -> None:
    out = tmp_path / "found"
    out.write_text("of yesterday")
    refused = rocketlens("find", g1_store, "-f", asked, "--out", out)
    assert (refused.code, "exists already" in refused.errors) == (2, True)
    assert out.read_text() == "of yesterday"
    assert rocketlens("find", g1_store, "-f", asked, "--out", out, "--replace").code == 1
    assert len(out.read_text().splitlines()) == HOT + 2
