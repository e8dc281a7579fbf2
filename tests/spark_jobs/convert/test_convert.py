"""A store of DLedger's as a plain one: its log, queues, index, timers, and what else it has."""

import json
import os

import pytest

from golden_store import GOLDEN, log_folders, unpack
from oracles import packed, signed
from plain_oracle import moved_units, plain_log
from protocol.errors import ConfigError, StoreError
from queue_runs import files_under
from spark_jobs.commands.run import run_convert
from spark_jobs.convert.convert_request import ConvertRequest
from spark_jobs.run.progress import Silence
from storage.layout.checkpoint import Checkpoint
from storage.store.message_store import MessageStore
from store_kinds import SEGMENT, TIMER_UNIT, Ledger
from store_writer import StoreWriter
from verifying import in_memory, verify_here


def convert(store, out, **options):
    return run_convert(ConvertRequest(store=str(store), out=str(out), **options), Silence())


def hold_against_oracle(store, out, segment_size):
    expected = plain_log(log_folders(store), segment_size)
    assert files_under(out / "commitlog") == expected.segments
    assert expected.moves
    verified = verify_here(out, out.parent)
    assert (verified.details.counts, verified.messages) == ({}, len(expected.moves))
    return expected


@pytest.mark.parametrize("name", ["g2-dledger", "g2-dledger-mixed"])
def test_a_recorded_ledger_becomes_a_plain_store_with_the_queues_of_its_broker(tmp_path, name) -> None:
    recorded = GOLDEN / "g2" / name
    store, out = unpack("store", tmp_path, archives=recorded), tmp_path / "plain"
    before = files_under(store)
    levels = json.loads((recorded / "store.json").read_text())["properties"]["messageDelayLevel"]
    report = convert(store, out, delay_levels=levels)
    assert report.exit_code == 0
    assert files_under(store) == before
    expected = hold_against_oracle(store, out, 16384)
    assert report.messages == len(expected.moves)
    assert report.details.log_end == report.details.converted.end == expected.end
    moved = {path: moved_units(data, expected.moves) for path, data in files_under(store / "consumequeue").items()}
    assert moved == files_under(out / "consumequeue")
    assert files_under(out / "config") == files_under(store / "config")
    assert (out / "abort").exists() == (store / "abort").exists() == (name == "g2-dledger-mixed")
    names = sorted(path.name for path in out.iterdir() if path.name != "abort")
    assert names == ["checkpoint", "commitlog", "config", "consumequeue", "index"]
    assert not (tmp_path / "plain.rocketlens-work").exists()
    old, new = Checkpoint.read(store / "checkpoint"), Checkpoint.read(out / "checkpoint")
    assert (new.physic_msg_timestamp, new.logics_msg_timestamp) == (old.physic_msg_timestamp, old.logics_msg_timestamp)
    assert new.confirm_physical_offset in (0, max(expected.moves.values()))
    assert new.logics_physical_offset in (0, expected.end)
    for path in (out / "commitlog").iterdir():
        (original,) = (folder / path.name for folder in log_folders(store) if (folder / path.name).exists())
        assert path.stat().st_mtime_ns == original.stat().st_mtime_ns
    if name == "g2-dledger-mixed":
        plain = sorted((store / "commitlog").iterdir())
        assert len(plain) == 3
        assert all((out / "commitlog" / path.name).read_bytes() == path.read_bytes() for path in plain)


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "store")


def test_commits_find_their_half_messages_in_whatever_segment_these_are(ledger, tmp_path) -> None:
    for number, between in enumerate([0, 1, 60, 5, 100, 30]):
        ledger.transaction(number, between)
    ledger.writer.close()
    for folder in log_folders(ledger.root):
        for path in folder.iterdir():
            os.utime(path, (1_600_000_000, 1_600_000_000))
    report = convert(ledger.root, tmp_path / "plain")
    assert {path.stat().st_mtime for path in (tmp_path / "plain" / "commitlog").iterdir()} == {1_600_000_000}
    expected = hold_against_oracle(ledger.root, tmp_path / "plain", SEGMENT)
    assert len(expected.segments) > 5
    assert report.details.converted.half_messages >= 3
    assert report.details.converted.lost == 0
    store = MessageStore.open(tmp_path / "plain")
    for half, commit in zip(ledger.halves, ledger.commits, strict=True):
        record = bytes(store.record_at(expected.moves[commit.physical_offset]) or b"")
        assert signed(record, 48 + 8 + 8 + 8 + 4, 8) == expected.moves[half.physical_offset]
    assert store.problems == []


def test_units_of_the_timer_lead_to_the_new_places_and_the_rest_stays(ledger, tmp_path) -> None:
    for number in range(9):
        ledger.timer(number)
        ledger.fill(20)
    ledger.write_timer_log(lost=1)
    ledger.writer.close()
    (ledger.root / "config" / "timercheck").write_bytes(b"\1" * 4096)
    report = convert(ledger.root, tmp_path / "plain")
    expected = hold_against_oracle(ledger.root, tmp_path / "plain", SEGMENT)
    old, new = ((root / "timerlog" / ("0" * 20)).read_bytes() for root in (ledger.root, tmp_path / "plain"))
    offsets = [signed(new, number * TIMER_UNIT + 28, 8) for number in range(10)]
    assert offsets == [*(expected.moves[each.physical_offset] for each in ledger.timers), -1]
    blanked = [bytearray(each) for each in (old, new)]
    for data in blanked:
        for number in range(10):
            data[number * TIMER_UNIT + 28 : number * TIMER_UNIT + 36] = bytes(8)
    assert blanked[0] == blanked[1]
    assert (report.details.converted.timers, report.details.converted.lost) == (9, 1)
    for name in ("timerwheel", "config/timercheck"):
        assert (tmp_path / "plain" / name).read_bytes() == (ledger.root / name).read_bytes()


def test_entries_behind_the_committed_index_are_converted_and_named(ledger, tmp_path) -> None:
    ledger.fill(3)
    start = ledger.writer.log.end
    number = ledger.writer.log.entries
    ledger.fill(2)
    ledger.writer.close()
    own = ledger.root / "dledger-n0"
    (own / "index").mkdir()
    unit = packed(1, 4) + packed(start, 8) + packed(100, 4) + packed(number, 8) + packed(0, 8)
    (own / "index" / ("0" * 20)).write_bytes((bytes(32 * number) + unit).ljust(32 * 100, b"\0"))
    (own / "checkpoint").write_text(f"committedIndex={number - 1}\nendIndex={number + 2}\n")
    report = convert(ledger.root, tmp_path / "plain")
    assert report.messages == 5
    said = f"from physical offset {start} of the old log on lie behind the committedIndex"
    assert any(said in note for note in report.notes)


def test_a_store_behind_a_url_becomes_the_same(ledger, tmp_path) -> None:
    ledger.transaction(0, 50)
    ledger.timer(0)
    ledger.write_timer_log()
    ledger.writer.close()
    convert(ledger.root, tmp_path / "from-directory")
    with in_memory(ledger.root) as url:
        report = convert(url, tmp_path / "from-url")
    assert report.details.converted.timers == 1
    made = [files_under(tmp_path / name) for name in ("from-directory", "from-url")]
    assert len(made[0]) > 10
    assert made[0] == made[1]
    assert not any(path.name.endswith(".rocketlens-work") for path in tmp_path.iterdir())


def test_what_cannot_be_converted_or_has_no_place_is_refused(ledger, tmp_path) -> None:
    ledger.fill(1)
    ledger.writer.close()
    with StoreWriter(tmp_path / "other") as plain:
        plain.append("Topic")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "store")
    for store, out, said in (
        (plain.root, "plain", "it is a plain store already"),
        (ledger.root, "full", "is not an empty directory"),
        (ledger.root, "link", "is a link or a mount point"),
    ):
        with pytest.raises(ConfigError, match=said):
            convert(store, tmp_path / out)
    (ledger.root / "rocksdbstore").mkdir()
    (ledger.root / "rocksdbstore" / "000012.sst").write_bytes(b"rows")
    with pytest.raises(StoreError, match="name places in the log: they cannot be converted"):
        convert(ledger.root, tmp_path / "plain")
    with pytest.raises(ConfigError, match="is a URL"):
        ConvertRequest(store="store", out="s3://bucket/plain")
    with pytest.raises(ConfigError, match="--out is missing"):
        ConvertRequest(store="store")
