"""A store of DLedger's as a plain one: its log, queues, index, timers, and what else it has."""

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import fsspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from golden_store import GOLDEN, log_folders, unpack
from oracles import packed, signed
from plain_oracle import PlainLog, moved_units, plain_log
from protocol.errors import ConfigError, StoreError
from protocol.question import KeyKind
from queue_runs import files_under
from rocketlens.cli.show_report import report_lines
from spark_jobs.commands.run import plan_job, run_convert, run_rescue
from spark_jobs.convert.convert_request import ConvertRequest
from spark_jobs.convert.rescue_request import RescueRequest
from spark_jobs.run.progress import Silence
from spark_jobs.run.report import Report
from storage.layout.checkpoint import Checkpoint
from storage.store.message_store import MessageStore
from store_kinds import COMMIT, SEGMENT, TIMER_UNIT, Ledger
from store_queries import found
from store_writer import StoreWriter
from verifying import upload, verify_here


def convert(store: Path | str, out: Path, **options: Any) -> Report:
    return run_convert(ConvertRequest(store=str(store), out=str(out), **options), Silence())


def found_by_unique_key(store: MessageStore, topic: str, key: str) -> list[bytes]:
    offsets = found(store, topic, key, KeyKind.UNIQUE)
    return [bytes(store.record_at(offset) or b"") for offset in offsets]


def hold_against_oracle(store: Path, out: Path, segment_size: int) -> PlainLog:
    """The log is what the oracle makes of it, and everything that leads to it does."""
    expected = plain_log(log_folders(store), segment_size)
    assert files_under(out / "commitlog") == expected.segments
    assert expected.moves
    verified = verify_here(out, out.parent)
    assert (verified.details.counts, verified.messages) == ({}, len(expected.moves))
    return expected


@pytest.mark.parametrize("name", ["g2-dledger", "g2-dledger-mixed"])
def test_a_recorded_ledger_becomes_a_plain_store_with_the_queues_of_its_broker(tmp_path: Path, name: str) -> None:
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
    assert {
        path: moved_units(data, expected.moves) for path, data in files_under(store / "consumequeue").items()
    } == files_under(out / "consumequeue")
    assert files_under(out / "config") == files_under(store / "config")
    assert (out / "abort").exists() == (store / "abort").exists() == (name == "g2-dledger-mixed")
    assert sorted(path.name for path in out.iterdir() if path.name != "abort") == [
        "checkpoint", "commitlog", "config", "consumequeue", "index",
    ]  # fmt: skip
    assert not (tmp_path / "plain.rocketlens-work").exists()
    old, new = Checkpoint.read(store / "checkpoint"), Checkpoint.read(out / "checkpoint")
    assert old is not None
    assert new is not None
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
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "store")


def test_commits_find_their_half_messages_in_whatever_segment_these_are(ledger: Ledger, tmp_path: Path) -> None:
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


def test_a_commit_whose_half_message_is_lost_points_nowhere(ledger: Ledger, tmp_path: Path) -> None:
    ledger.transaction(0, 60)
    ledger.transaction(1, 60)
    place = ledger.halves[1]
    ledger.writer.overwrite(place.physical_offset + 4, b"\x55" * 60)
    ledger.writer.close()
    report = convert(ledger.root, tmp_path / "plain")
    assert report.exit_code == 4
    assert report.details.converted.lost == 1
    assert [damage.physical_offset for damage in report.damages] == [place.physical_offset - 48]
    store = MessageStore.open(tmp_path / "plain")
    (record,) = found_by_unique_key(store, "Transactions", "T1")
    assert signed(record, 48 + 8 + 8 + 8 + 4, 8) == -1


def test_what_expired_with_its_segment_keeps_its_offset_below_the_log(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "store", start=3 * SEGMENT)
    ledger.fill(3)
    expired = 2 * SEGMENT + 48
    commit = ledger.writer.append(
        "Transactions", b"done", unique_key="T", sys_flag=COMMIT, prepared_transaction_offset=expired
    )
    ledger.writer.close()
    report = convert(ledger.root, tmp_path / "plain")
    assert report.details.converted.lost == 0
    expected = hold_against_oracle(ledger.root, tmp_path / "plain", SEGMENT)
    record = bytes(MessageStore.open(tmp_path / "plain").record_at(expected.moves[commit.physical_offset]) or b"")
    assert signed(record, 48 + 8 + 8 + 8 + 4, 8) == expired


def test_units_of_the_timer_lead_to_the_new_places_and_the_rest_of_its_files_stays(
    ledger: Ledger, tmp_path: Path
) -> None:
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


@settings(max_examples=5)
@given(numbers=st.sets(st.integers(1, 58), min_size=1, max_size=4))
@example(numbers={20})
@example(numbers={57, 58, 59})
def test_what_a_rescue_loses_of_a_ledger_is_named_and_foreseen(numbers: set[int]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        ledger = Ledger(Path(directory) / "store")
        ledger.fill(60)
        for number in numbers:
            lost = ledger.writer.written[number]
            ledger.writer.overwrite(lost.physical_offset, b"\x55" * lost.size)
        ledger.writer.consumer_offsets = {"Topic@group": {0: 0}}
        ledger.writer.close()
        request = RescueRequest(store=str(ledger.root), out=f"{directory}/new")
        outlook = plan_job("rescue", request).outlook
        report = run_rescue(request, Silence())
        assert outlook is not None
        losses = report.details.converted.losses
        assert outlook.losses == losses
        assert outlook.kept == 60 - len(numbers)
        assert {each for run in losses.listed for each in range(run.first, run.first + run.count)} == numbers
        assert [(each.group, each.count) for each in losses.not_consumed] == [("group", len(numbers))]
        assert report.exit_code == 4
        assert set(losses.sentences()) <= set(report_lines(report))
        assert len(numbers) > 1 or any(note.startswith("1 lost message replaced by ") for note in report.notes)


def test_a_queue_whose_messages_are_all_lost_goes_on_from_its_numbers(ledger: Ledger, tmp_path: Path) -> None:
    """Its units may lead to no other message; the fillers in their place lead to none."""
    lost = []
    for _ in range(3):
        ledger.fill(40)
        lost.append(ledger.writer.append("Lost", b"lost"))
    ledger.fill(40)
    for each in lost:
        ledger.writer.overwrite(each.physical_offset, b"\x55" * each.size)
    ledger.writer.consumer_offsets = {"Lost@group": {0: 2}}
    ledger.writer.close()
    report = convert(ledger.root, tmp_path / "plain")
    assert report.details.queues.carried_over == {
        "withoutRecords": 1,
        "filesLinked": 0,
        "filesCopied": 1,
        "filesLeftOut": 0,
    }
    queue = MessageStore.open(tmp_path / "plain").queues.queue("Lost", 0)
    assert queue is not None
    assert queue.max_offset == 3
    units = (tmp_path / "plain" / "consumequeue" / "Lost" / "0" / ("0" * 20)).read_bytes()
    assert units == (packed(0, 8) + packed(0x7FFFFFFF, 4) + packed(0, 8)).ljust(20, b"\0") * 3 + bytes(len(units) - 60)
    verified = verify_here(tmp_path / "plain", tmp_path)
    assert verified.details.counts == {}


def test_a_topic_that_was_deleted_and_made_again_does_not_come_back(ledger: Ledger, tmp_path: Path) -> None:
    """The queue of its earlier life is gone; its records are in the log, and numbers begin anew behind them."""
    ledger.writer.append("Reborn", b"old 0", queue=False)
    ledger.writer.append("Reborn", b"old 1", queue=False)
    ledger.fill(10)
    ledger.writer.next_queue_offset["Reborn", 0] = 0
    second = [ledger.writer.append("Reborn", b"new") for _ in range(2)]
    ledger.writer.close()
    convert(ledger.root, tmp_path / "plain")
    expected = hold_against_oracle(ledger.root, tmp_path / "plain", SEGMENT)
    queue = MessageStore.open(tmp_path / "plain").queues.queue("Reborn", 0)
    assert queue is not None
    assert [unit.physical_offset for unit in queue.entries(0, 10)] == [
        expected.moves[each.physical_offset] for each in second
    ]


def test_queues_of_expired_messages_and_committed_offsets_stay(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "store", start=2 * SEGMENT)
    ledger.fill(5)
    ledger.writer.consumer_offsets = {"Expired@group": {0: 3}}
    ledger.writer.close()
    old = ledger.root / "consumequeue" / "Expired" / "0" / ("0" * 20)
    old.parent.mkdir(parents=True)
    units = b"".join(packed(SEGMENT + 100 * number, 8) + packed(100, 4) + packed(0, 8) for number in range(3))
    old.write_bytes(units.ljust(2000, b"\0"))
    convert(ledger.root, tmp_path / "plain")
    queue = MessageStore.open(tmp_path / "plain").queues.queue("Expired", 0)
    assert queue is not None
    assert queue.max_offset == 3
    assert json.loads((tmp_path / "plain" / "config" / "consumerOffset.json").read_text().replace("0:", '"0":', 1))


def test_entries_behind_the_committed_index_are_converted_and_named(ledger: Ledger, tmp_path: Path) -> None:
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
    assert any(f"from physical offset {start} of the old log on lie behind the committedIndex" in note
               for note in report.notes)  # fmt: skip


def test_a_checkpoint_that_a_killed_run_left_half_is_not_believed(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --keep-checkpoint the index does not write it anew."""
    from spark_jobs.publish import deliver

    ledger.writer.append("Topic", b"no key")
    ledger.writer.close()

    def die(work: Any, *_: object) -> None:
        os.truncate(work.staged / "checkpoint", 0)
        raise StoreError(tmp_path, what="is gone")

    with monkeypatch.context() as patched:
        patched.setattr(deliver, "publish_store", die)
        with pytest.raises(StoreError, match="is gone"):
            convert(ledger.root, tmp_path / "plain", keep_checkpoint=True)
    assert convert(ledger.root, tmp_path / "plain", keep_checkpoint=True).resumed
    old, new = (Checkpoint.read(root / "checkpoint") for root in (ledger.root, tmp_path / "plain"))
    assert old is not None
    assert new is not None
    assert old.physic_msg_timestamp > 0
    assert (new.physic_msg_timestamp, new.logics_msg_timestamp) == (old.physic_msg_timestamp, old.logics_msg_timestamp)


def test_a_store_that_was_taken_away_after_such_a_run_is_made_again(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the run had kept says that all is done; the segments are gone, and with them what was mended in them."""
    from spark_jobs.run.work_directory import WorkDirectory

    ledger.transaction(0, 100)
    ledger.writer.close()
    with monkeypatch.context() as patched:
        patched.setattr(WorkDirectory, "remove", WorkDirectory.close)
        assert convert(ledger.root, tmp_path / "plain").details.converted.half_messages == 1
    shutil.rmtree(tmp_path / "plain")
    report = convert(ledger.root, tmp_path / "plain")
    assert report.details.converted.half_messages == 1
    hold_against_oracle(ledger.root, tmp_path / "plain", SEGMENT)


def test_a_store_behind_a_url_becomes_the_same(ledger: Ledger, tmp_path: Path) -> None:
    ledger.transaction(0, 50)
    ledger.timer(0)
    ledger.write_timer_log()
    ledger.writer.close()
    convert(ledger.root, tmp_path / "from-directory")
    url = f"memory://convert-{os.getpid()}"
    upload(ledger.root, url)
    try:
        report = convert(url, tmp_path / "from-url")
    finally:
        fsspec.filesystem("memory").rm(url, recursive=True)
    assert report.details.converted.timers == 1
    made = [files_under(tmp_path / name) for name in ("from-directory", "from-url")]
    assert len(made[0]) > 10
    assert made[0] == made[1]
    assert not any(path.name.endswith(".rocketlens-work") for path in tmp_path.iterdir())


class TestRefused:
    """Without a task."""

    def test_a_plain_store(self, tmp_path: Path) -> None:
        writer = StoreWriter(tmp_path / "store")
        writer.append("Topic")
        writer.close()
        with pytest.raises(ConfigError, match="it is a plain store already"):
            convert(tmp_path / "store", tmp_path / "plain")

    def test_a_place_that_holds_something(self, ledger: Ledger, tmp_path: Path) -> None:
        ledger.fill(1)
        ledger.writer.close()
        (tmp_path / "plain").mkdir()
        (tmp_path / "plain" / "file").touch()
        with pytest.raises(ConfigError, match="is not an empty directory"):
            convert(ledger.root, tmp_path / "plain")
        (tmp_path / "link").symlink_to(tmp_path / "store")
        with pytest.raises(ConfigError, match="is a link or a mount point"):
            convert(ledger.root, tmp_path / "link")

    def test_rows_in_rocksdb(self, ledger: Ledger, tmp_path: Path) -> None:
        ledger.fill(1)
        ledger.writer.close()
        (ledger.root / "rocksdbstore").mkdir()
        (ledger.root / "rocksdbstore" / "000012.sst").write_bytes(b"rows")
        with pytest.raises(StoreError, match="name places in the log: they cannot be converted"):
            convert(ledger.root, tmp_path / "plain")
        shutil.rmtree(ledger.root / "rocksdbstore")

    def test_a_url_for_the_output(self) -> None:
        with pytest.raises(ConfigError, match="is a URL"):
            ConvertRequest(store="store", out="s3://bucket/plain")
        with pytest.raises(ConfigError, match="--out is missing"):
            ConvertRequest(store="store")
