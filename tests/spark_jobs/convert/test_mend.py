"""A damaged store becomes a whole one: nothing moves, holes are filled, what is lost is named, the source stays."""

import json
import os
import shutil

import pytest

from command_line import rocketlens
from oracles import read_log
from protocol.errors import ConfigError, StoreError
from read_only import state_of
from rocketlens.cli.show_report import report_lines
from spark_jobs.commands.run import plan_job, run_rescue
from spark_jobs.convert.rescue_request import RescueRequest
from spark_jobs.run.progress import Silence
from storage.doctor.examine import examine
from storage.layout.checkpoint import Checkpoint
from storage.layout.store_layout import recognise_store
from storage.recovery.start_refusals import foretell_refusals
from store_writer import StoreWriter

SEGMENT = 8192
STORE_TIME = 56  # where a record with addresses of IPv4 says when it was stored


@pytest.fixture
def writer(tmp_path):
    with StoreWriter(tmp_path / "store", segment_size=SEGMENT, queue_file_size=20 * 50, index_entries=500) as writer:
        writer.consumer_offsets = {"T@g": {0: 3, 1: 2}}
        number = 0
        while writer.log.end < 5.5 * SEGMENT:
            writer.append("T", b"%d" % number * 30, keys=f"k{number}", unique_key=f"u{number}", queue_id=number % 2)
            number += 1
    return writer


def rescue(writer, out, **options):
    before = state_of(writer.root)
    report = run_rescue(RescueRequest(store=str(writer.root), out=str(out), **options), Silence())
    if not options.get("link"):
        assert state_of(writer.root) == before
    assert [each for each in examine(out).findings if each.severity != "info"] == []
    return report


def details(report):
    assert report.details.mended is not None
    return report.details.mended


def segment(root, number):
    return root / "commitlog" / f"{number * SEGMENT:020d}"


def lose(writer, written) -> None:
    writer.overwrite(written.physical_offset, bytes(written.size))


def places(root):
    return [each.physical_offset for each in read_log([root / "commitlog"]) if each.topic == "T"]


def test_what_is_lost_is_filled_and_named_and_all_else_stays_in_its_place(writer, tmp_path) -> None:
    lost = [writer.written[number] for number in (4, 5, 6, 50)]
    for each in lost:
        lose(writer, each)
    (writer.root / "abort").touch()
    report = rescue(writer, tmp_path / "new")
    assert report.exit_code == 4
    assert not (tmp_path / "new" / "abort").exists()
    checkpoint = Checkpoint.read(tmp_path / "new" / "checkpoint")
    assert checkpoint.physic_msg_timestamp == writer.written[-1].store_timestamp
    assert checkpoint.confirm_physical_offset <= writer.log.end
    assert places(tmp_path / "new") == [each.physical_offset for each in writer.written if each not in lost]
    found = details(report)
    assert (found.filled_places, found.filled_bytes) == (2, sum(each.size for each in lost))
    named = {(each.topic, each.queue_id, each.first, each.count) for each in found.losses.listed}
    assert named == {("T", 0, 2, 2), ("T", 0, 25, 1), ("T", 1, 2, 1)}
    assert [(each.group, each.count) for each in found.losses.not_consumed] == [("g", 3)]
    assert found.losses.messages == 4
    lines = list(report_lines(report))
    assert any(line.startswith("lost: 2 messages 2 to 3 of T queue 0, from physical offset ") for line in lines)
    assert "lost: group g had not consumed 3 messages of them in T" in lines
    assert any(line.startswith("to start a broker: in its configuration storePathRootDir=") for line in lines)


def test_a_recorded_store_that_was_not_damaged_stays_what_it_is(g1_store, tmp_path) -> None:
    new = tmp_path / "new"
    outcome = rocketlens("rescue", g1_store, "--out", new, "--json")
    assert outcome.code == 0, outcome.errors
    for path in (*(g1_store / "commitlog").iterdir(), *(g1_store / "consumequeue").glob("*/*/*")):
        assert (new / path.relative_to(g1_store)).read_bytes() == path.read_bytes(), path
    assert {path.name for path in (new / "config").iterdir()} == {path.name for path in (g1_store / "config").iterdir()}


def test_what_stands_for_lost_messages_has_the_time_of_those_beside_it(writer, tmp_path) -> None:
    for number, each in enumerate(writer.written):
        stamp = (writer.written[0].store_timestamp + number * 60_000).to_bytes(8, "big")
        writer.overwrite(each.physical_offset + STORE_TIME, stamp)
    shutil.rmtree(writer.root / "index")
    (writer.root / "checkpoint").unlink()
    assert "clock" not in {each.check for each in examine(writer.root).findings}
    ends = [each for each in writer.written if SEGMENT * 3 < each.physical_offset + each.size <= SEGMENT * 4][-4:]
    for each in (*(each for each in writer.written if each.physical_offset < SEGMENT), *ends):
        lose(writer, each)
    rescue(writer, tmp_path / "new")
    times = [each.store_timestamp for each in read_log([tmp_path / "new" / "commitlog"])]
    assert times == sorted(times)


@pytest.mark.parametrize("kind", ["cut", "junk", "front"])
def test_losses_at_the_ends_of_the_log_are_named_beforehand_too(writer, tmp_path, kind) -> None:
    start, stop = SEGMENT * 4 + 3000, writer.log.end
    if kind == "cut":
        segment(writer.root, 5).unlink()
        writer.overwrite(start, bytes(SEGMENT - 3000))
    elif kind == "front":
        os.truncate(segment(writer.root, 0), 0)
        start, stop = 0, SEGMENT
    else:
        start = 0
        for number in range(6):
            segment(writer.root, number).write_bytes(b"\x9c\x01" * (SEGMENT // 2))
    lost = [each for each in writer.written if start < each.physical_offset + each.size and each.physical_offset < stop]
    options = {"store": str(writer.root), "out": str(tmp_path / "new")}
    foreseen = plan_job("rescue", RescueRequest(**options)).outlook
    report = run_rescue(RescueRequest(**options), Silence())
    assert report.exit_code == 4
    found = details(report).losses
    assert foreseen.losses == found
    named = {(each.queue_id, number) for each in found.listed for number in range(each.first, each.first + each.count)}
    assert named == {(each.queue_id, each.queue_offset) for each in lost}
    assert found.messages == len(lost)
    are_behind = {"lost, or the log was once cut" in each for each in found.sentences() if " queue " in each}
    assert are_behind == {"cut": {True}, "front": {False}}.get(kind, are_behind)


def test_a_last_segment_that_was_cut_and_a_torn_end_are_closed(writer, tmp_path) -> None:
    last = writer.written[-1]
    os.truncate(segment(writer.root, 5), last.physical_offset - 5 * SEGMENT + 40)
    rescue(writer, tmp_path / "new")
    data = segment(tmp_path / "new", 5).read_bytes()
    assert len(data) == SEGMENT
    assert not any(data[last.physical_offset - 5 * SEGMENT :])
    assert places(tmp_path / "new") == [each.physical_offset for each in writer.written[:-1]]


@pytest.mark.parametrize("has_backup", [True, False])
def test_configuration_that_is_no_json_is_exchanged(writer, tmp_path, has_backup) -> None:
    path = writer.root / "config" / "consumerOffset.json"
    path.write_text('{"offsetTable":{"T@g":{0:3,1:2},"T@other":{0:')
    if has_backup:
        path.with_name("consumerOffset.json.bak").write_text(json.dumps({"offsetTable": {"T@g": {"0": 2, "1": 2}}}))
    report = rescue(writer, tmp_path / "new")
    table = json.loads((tmp_path / "new" / "config" / "consumerOffset.json").read_text())["offsetTable"]
    assert table == {"T@g": {"0": 2 if has_backup else 3, "1": 2}}
    assert any(note.startswith("config/consumerOffset.json was no whole JSON: ") for note in report.notes)


def topics_of(root):
    table = json.loads((root / "config" / "topics.json").read_text())["topicConfigTable"]
    return table


@pytest.mark.parametrize("length", [None, 60, 200])
def test_topics_that_a_cut_file_lost_are_said_again_as_the_queues_show_them(writer, tmp_path, length) -> None:
    writer.append_inner_batch("B", [(b"one", {}), (b"two", {})], queue_id=2)
    writer.close()
    path = writer.root / "config" / "topics.json"
    if length is None:
        path.unlink()
    else:
        os.truncate(path, length)
    report = rescue(writer, tmp_path / "new")
    topics = topics_of(tmp_path / "new")
    assert topics["B"]["attributes"] == {"queue.type": "BatchCQ"}  # as a broker stores it: the plus is in requests
    assert topics["B"]["readQueueNums"] == topics["B"]["writeQueueNums"] >= 3
    assert topics["T"]["readQueueNums"] >= 2
    assert topics["T"].get("attributes", {}) == {}
    assert foretell_refusals(recognise_store(tmp_path / "new"), lambda topic: topic == "B") == []
    assert any(note.startswith("config/topics.json did not say that the queues of these") for note in report.notes)


def test_what_is_no_file_counts_as_missing(writer, tmp_path) -> None:
    for name in ("checkpoint", "config/topics.json", "config/consumerOffset.json"):
        (writer.root / name).unlink()
        (writer.root / name / "inside").mkdir(parents=True)
    report = rescue(writer, tmp_path / "new")
    assert report.exit_code == 0
    checkpoint = Checkpoint.read(tmp_path / "new" / "checkpoint")
    assert checkpoint.physic_msg_timestamp == writer.written[-1].store_timestamp
    assert topics_of(tmp_path / "new").keys() == {"T"}
    assert not (tmp_path / "new" / "config" / "consumerOffset.json").exists()
    for name in ("checkpoint", "config/topics.json", "config/consumerOffset.json"):
        assert any(name in note for note in report.notes), name


def test_segments_of_no_one_size_are_refused(writer, tmp_path) -> None:
    segment(writer.root, 3).rename(writer.root / "commitlog" / f"{3 * SEGMENT + 100:020d}")
    with pytest.raises(StoreError, match="does not start a whole number of segments"):
        run_rescue(RescueRequest(store=str(writer.root), out=str(tmp_path / "new")), Silence())
    assert not (tmp_path / "new").exists()


def test_a_disk_that_is_too_small_is_named_before_anything_is_written(writer, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("spark_jobs.commands.job_plan._free", lambda _: 1000)
    with pytest.raises(ConfigError, match=r"the disk is too small: .* are missing"):
        run_rescue(RescueRequest(store=str(writer.root), out=str(tmp_path / "new")), Silence())
    assert not (tmp_path / "new").exists()


def test_more_damage_than_is_listed_is_filled_too(writer, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("spark_jobs.scan.segment_walk.MOST_BREAKS", 1)
    lost = [writer.written[number] for number in (3, 6, 9, 14)]
    for each in lost:
        lose(writer, each)
    report = rescue(writer, tmp_path / "new")
    assert places(tmp_path / "new") == [each.physical_offset for each in writer.written if each not in lost]
    assert details(report).filled_places == 4
