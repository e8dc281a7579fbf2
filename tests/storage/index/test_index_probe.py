"""A sample of an index file's entries held against the records they point to."""

from pathlib import Path
from typing import Any

import pytest

import oracles
from storage.files.mapped_file import MappedFile
from storage.index import index_probe as module
from storage.index.index_file import IndexFile, determine_shape
from storage.index.index_probe import SAMPLE, ProbeResult, probe_index_file
from storage.log.commit_log import CommitLog
from store_writer import StoreWriter

SLOTS = 97


def probe(writer: StoreWriter, number: int = 0) -> ProbeResult:
    writer.close()
    return probe_path(writer.index_paths()[number], CommitLog.open(writer.log.directories))


def probe_path(path: Path, log: CommitLog) -> ProbeResult:
    file = MappedFile.open(path)
    shape = determine_shape(file, [SLOTS])
    assert shape is not None
    return probe_index_file(IndexFile(file, shape), log)


def store_of(root: Path, count: int, profile: str = "5.5", **message: str | None) -> StoreWriter:
    writer = StoreWriter(root, index_entries=2000, profile=profile)
    for number in range(count):
        fields: dict[str, Any] = {"keys": "k{}", "tags": "TagA", "unique_key": "u{}", **message}
        writer.append("T", **{name: text and text.format(number) for name, text in fields.items()})
    return writer


class TestTags:
    @pytest.mark.parametrize("count", [2, 8, 400])
    def test_a_file_that_keeps_tags_is_told_from_one_that_does_not(self, tmp_path: Path, count: int) -> None:
        assert probe(store_of(tmp_path / "5.5", count)) == ProbeResult(fits=True, has_tags=True)
        assert probe(store_of(tmp_path / "5.3", count, "5.3")) == ProbeResult(fits=True, has_tags=False)

    def test_untagged_messages_say_nothing_so_tags_are_not_relied_on(self, tmp_path: Path) -> None:
        assert probe(store_of(tmp_path, 50, tags=None)) == ProbeResult(fits=True, has_tags=False)

    def test_a_file_begun_by_an_old_broker_and_continued_by_a_new_one_keeps_no_tags(self, tmp_path: Path) -> None:
        writer = store_of(tmp_path, 30, "5.3")
        writer.index.profile = "5.5"
        for number in range(30):
            writer.append("T", keys=f"new{number}", tags="TagA")
        assert probe(writer) == ProbeResult(fits=True, has_tags=False)

    def test_the_last_record_s_tag_may_lie_in_the_next_file(self, tmp_path: Path) -> None:
        writer = StoreWriter(tmp_path, index_entries=9)  # 8 entries: two messages of three, and two of the third's
        for number in range(6):
            writer.append("T", keys=f"k{number}", unique_key=f"u{number}", tags="TagA")
        assert len(writer.index.files) == 3
        assert writer.index.files[0].entries[-1][1] == writer.written[2].physical_offset
        assert [probe(writer, number).has_tags for number in range(2)] == [True, True]


class TestFitting:
    def test_a_file_of_a_log_with_records_at_the_same_places_does_not_fit(self, tmp_path: Path) -> None:
        mine, other = store_of(tmp_path / "mine", 60), store_of(tmp_path / "other", 60, keys="j{}")
        mine.close()
        other.close()
        assert [w.physical_offset for w in mine.written] == [w.physical_offset for w in other.written]
        assert not probe_path(other.index_paths()[0], CommitLog.open(mine.log.directories)).fits

    def test_entries_of_expired_records_are_no_sign_of_anything(self, tmp_path: Path) -> None:
        writer = StoreWriter(tmp_path, index_entries=2000, segment_size=2048)
        for number in range(100):
            writer.append("T", keys=f"k{number}", tags="TagA")
        writer.close()
        for base, path in writer.log.segments.items():
            if base < 8192:
                path.unlink()
        assert probe(writer) == ProbeResult(fits=True, has_tags=True)

    def test_a_few_damaged_records_do_not_refute_a_file(self, tmp_path: Path) -> None:
        writer = store_of(tmp_path, 100)
        for written in writer.written[5:12]:
            writer.overwrite(written.physical_offset + 4, bytes(4))
        writer.roll()
        writer.append("T", b"the damage lies in an earlier segment", index=False)
        assert probe(writer).fits

    def test_keys_of_another_dialect_do_not_fit(self, tmp_path: Path) -> None:
        """rocketmq-rust writes ``topic#U#id`` for a unique key: its files cover nothing, the log is scanned."""
        writer = store_of(tmp_path, 40)
        image = oracles.IndexImage(SLOTS, 2000)
        for record in writer.records:
            image.put(f"T#U#{record.properties['UNIQ_KEY']}", record.physical_offset, record.store_timestamp)
        writer.index.files = [image]
        assert not probe(writer).fits

    @pytest.mark.parametrize("place", [0, -SAMPLE])
    def test_one_foreign_entry_among_the_first_or_last_is_noticed(self, tmp_path: Path, place: int) -> None:
        writer = store_of(tmp_path, 400)
        image = writer.index.files[0]
        hashed, _, seconds, previous = image.entries[place]
        image.entries[place] = (hashed, writer.written[200].physical_offset, seconds, previous)
        assert not probe(writer).fits


def test_records_that_are_written_anew_while_they_are_looked_at_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = store_of(tmp_path, 20)
    writer.close()
    log = CommitLog.open(writer.log.directories)
    for path in writer.log.directories[0].iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    monkeypatch.setattr(module, "check_shape", lambda *place: 100)
    assert probe_path(writer.index_paths()[0], log) == ProbeResult(fits=False, has_tags=False)
