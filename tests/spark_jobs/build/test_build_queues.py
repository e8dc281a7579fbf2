"""Queues from the blocks of a scan: the broker's files where the log is whole, and no worse than before where not."""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings

from job_runs import Rebuilt
from queue_runs import files_under, units_in
from spark_jobs.build import build_queues as job
from spark_jobs.build.place_queues import RemarkableQueue
from spark_jobs.run.report import Damage
from store_writer import StoreWriter
from strategies import store_plans

SEGMENT = 4096
TREES = ("consumequeue", "batchconsumequeue", "consumequeue_ext")


def queue_files(store: Path) -> dict[str, bytes]:
    found = {f"{tree}/{name}": data for tree in TREES for name, data in files_under(store / tree).items()}
    return {name: data for name, data in found.items() if any(data)}


def wipe(store: Path, *trees: str) -> None:
    for tree in trees:
        shutil.rmtree(store / tree)


def everything(root, **options):
    writer = StoreWriter(root, segment_size=SEGMENT, **options)
    for number in range(120):
        light = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": f"{number // 10},{number // 10}"}
        writer.append("T", queue_id=number % 3, tags=f"tag{number % 4}", properties=light if number % 10 == 0 else None)
        if number % 4 == 0:
            writer.append_inner_batch("B", [(b"a", {}), (b"b", {})], queue_id=number % 8 // 4, tags="x")
        if number % 7 == 0:
            writer.append("SCHEDULE_TOPIC_XXXX", queue_id=2, properties={"DELAY": "3", "REAL_TOPIC": "T"}, tags="t")
        writer.append("T", queue_id=number % 3, sys_flag=0xC if number % 5 else 0x8)
    writer.close()
    return writer


@pytest.mark.parametrize(("ext", "bundles", "held"), [(None, 1, job.HELD_BYTES), (b"", 5, 100)])
def test_queues_of_all_kinds_come_out_as_they_were(ext, bundles, held, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(job, "HELD_BYTES", held)
    writer = everything(tmp_path / "store", ext_bit_map=ext, ext_file_size=400)
    expected = queue_files(writer.root)
    rebuilt = Rebuilt(writer.root, tmp_path / "work", bundles=bundles)
    assert rebuilt.files == expected
    assert (rebuilt.details.batch_queues, rebuilt.details.queues) == (2, 8)
    assert rebuilt.trees == list(TREES[: 2 if ext is None else 3])
    assert (rebuilt.details.ext_units > 0) == (ext is not None)
    assert any("filter bitmap" in note for note in rebuilt.notes) == (ext is not None)


@settings(max_examples=settings.default.max_examples // 3)
@given(plan=store_plans(maximum_messages=30))
def test_random_stores_come_out_as_they_were(plan) -> None:
    for message in plan.messages:
        message["queue"] = True
    with TemporaryDirectory() as directory:
        writer = plan.write(Path(directory, "store"))
        expected = queue_files(writer.root)
        if plan.messages:
            wipe(writer.root, *(tree for tree in TREES[:1] if (writer.root / tree).exists()))
            size = plan.options["queue_file_size"]
            rebuilt = Rebuilt(writer.root, Path(directory, "work"), consume_queue_file_size=size)
            assert rebuilt.files == expected


def one_queue(root, count=100, **options):
    with StoreWriter(root, segment_size=SEGMENT, queue_file_size=400, **options) as writer:
        for number in range(count):
            writer.append("T", b"body", tags=f"t{number}")
    return writer


def damage(writer: StoreWriter, first: int, count: int) -> Damage:
    for written in writer.written[first : first + count]:
        writer.overwrite(written.physical_offset + 4, b"\xff" * 4)
    start = writer.written[first].physical_offset
    last = writer.written[first + count - 1]
    return Damage("path", start, last.physical_offset + last.size - start, "a record", "none")


def test_behind_damage_all_messages_keep_their_offsets(tmp_path: Path) -> None:
    writer = one_queue(tmp_path / "store")
    before = units_in(writer.root / "consumequeue" / "T" / "0")
    lost = damage(writer, 10, 3)
    rebuilt = Rebuilt(writer.root, tmp_path / "work", damages=(lost,))
    found = units_in(rebuilt.work.staged / "consumequeue" / "T" / "0")
    assert found == before | dict.fromkeys([10, 11, 12], before[13])
    assert (rebuilt.details.repeated, rebuilt.details.units) == (3, 97)
    assert rebuilt.details.remarkable == [RemarkableQueue(queue="consumequeue/T/0", repeated=3)]
    assert any(note.startswith("3 lost messages") for note in rebuilt.notes)


def test_offsets_go_on_behind_damage_at_the_end_of_a_queue(tmp_path: Path) -> None:
    """The next message would get a number that consumers have behind them."""
    writer = one_queue(tmp_path / "store")
    writer.append("Other")
    writer.close()
    lost = damage(writer, 96, 4)
    rebuilt = Rebuilt(writer.root, tmp_path / "known", damages=(lost,))
    found = units_in(rebuilt.work.staged / "consumequeue" / "T" / "0")
    assert len(found) == 100
    assert found[99] == found[95]
    wipe(writer.root, "consumequeue")
    rebuilt = Rebuilt(writer.root, tmp_path / "unknown", damages=(lost,), consume_queue_file_size=400)
    assert len(units_in(rebuilt.work.staged / "consumequeue" / "T" / "0")) == 96


def test_expired_queues_are_carried_over(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "store", segment_size=SEGMENT, queue_file_size=400) as writer:
        for _ in range(30):
            writer.append("Silent")
        writer.roll()
        for _ in range(30):
            writer.append("T")
    (writer.root / "commitlog" / f"{0:020d}").unlink()
    for in_place in (True, False):
        rebuilt = Rebuilt(writer.root, tmp_path / str(in_place), in_place=in_place)
        assert rebuilt.files == queue_files(writer.root)
        linked = (rebuilt.work.staged / "consumequeue/Silent/0" / f"{0:020d}").stat().st_nlink == 2
        assert linked == in_place
        assert rebuilt.details.carried_over["withoutRecords"] == 1
        assert "1 queue without messages in the log copied, so that the offsets continue" in rebuilt.notes


def test_topics_can_be_picked(tmp_path: Path) -> None:
    writer = everything(tmp_path / "store")
    expected = queue_files(writer.root)
    only = Rebuilt(writer.root, tmp_path / "out", topics=frozenset({"B"}))
    assert only.files == {name: data for name, data in expected.items() if "/B/" in name}
    inside = Rebuilt(writer.root, tmp_path / "in", topics=frozenset({"B"}), in_place=True)
    assert inside.files == expected
    assert inside.details.carried_over["otherTopics"] == 6


@pytest.mark.parametrize("drop", [False, True])
def test_topics_that_nobody_knows_are_told_and_dropped_when_asked(drop: bool, tmp_path: Path) -> None:
    writer = one_queue(tmp_path / "store")
    writer.append("Deleted")
    writer.close()
    del writer.topic_attributes["Deleted"]
    writer.close()
    rebuilt = Rebuilt(writer.root, tmp_path / "work", drop_unknown_topics=drop)
    assert any("/Deleted/" in name for name in rebuilt.files) != drop
    assert rebuilt.details.unknown_topics == ["Deleted"]
    assert any("Deleted" in note for note in rebuilt.notes)
    assert bool(rebuilt.details.left_out) == drop


def test_a_topic_that_is_no_name_is_left_out(tmp_path: Path) -> None:
    writer = one_queue(tmp_path / "store")
    for topic in ("../../outside", "a/b", ".."):
        writer.append(topic, queue=False)
    writer.close()
    rebuilt = Rebuilt(writer.root, tmp_path / "work")
    assert rebuilt.files == queue_files(writer.root)
    assert sum(rebuilt.details.left_out.values()) == 3
    assert not (tmp_path / "outside").exists()
