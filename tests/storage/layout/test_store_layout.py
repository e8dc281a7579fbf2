"""Which directories are stores, and what a refusal says about those that are none."""

import errno
import os
from pathlib import Path

import pytest

from oracles import packed
from protocol.errors import NotAStore, StoreError
from spark_jobs.read.log_ranges import find_ranges
from spark_jobs.scan.source import find_source
from storage.diff.log_pieces import open_log
from storage.doctor.opened_store import OpenedStore
from storage.store.store_state import recognise_store
from store_writer import StoreWriter

SEGMENT = "0" * 20


def make_store(root: Path) -> Path:
    writer = StoreWriter(root)
    writer.append("T", b"hello", keys="k")
    writer.close()
    return root


def refusal(root: Path, *directories: Path) -> str:
    with pytest.raises(NotAStore) as refused:
        recognise_store(root, directories)
    text = str(refused.value)
    assert "\n" not in text
    assert text.startswith(f"{root} is no store that can be served: found ")
    assert ", expected " in text
    return text


def test_the_recorded_store_is_whole(g1_store: Path) -> None:
    layout = recognise_store(g1_store)
    assert (layout.missing, layout.problems) == ((), [])
    assert layout.commit_log_directories == (g1_store / "commitlog",)
    for path in (layout.consume_queue, layout.index, layout.config, layout.checkpoint):
        assert path.exists()


def test_a_log_alone_is_a_store_and_the_rest_is_named_as_missing(tmp_path: Path) -> None:
    make_store(tmp_path / "whole")
    (tmp_path / "bare").mkdir()
    (tmp_path / "whole" / "commitlog").rename(tmp_path / "bare" / "commitlog")
    layout = recognise_store(tmp_path / "bare")
    assert layout.missing == ("consumequeue", "index", "config", "checkpoint")
    assert layout.problems[1] == f"{tmp_path}/bare/index is missing; the store is served without it"


def test_a_store_of_batches_needs_no_plain_queues(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path)
    writer.append_inner_batch("B", [(b"", {})])
    writer.close()
    assert recognise_store(tmp_path).missing == ()


def test_the_log_may_lie_in_other_directories(tmp_path: Path) -> None:
    writer = StoreWriter(
        tmp_path / "root", segment_size=256, commit_log_directories=[tmp_path / "one", tmp_path / "two"]
    )
    for _ in range(4):
        writer.append("T", bytes(100))
    writer.close()
    directories = (tmp_path / "one", tmp_path / "two")
    assert recognise_store(tmp_path / "root", directories).commit_log_directories == directories
    assert "found no commitlog/ among abort" not in refusal(tmp_path / "root")


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_a_missing_directory_is_refused(tmp_path: Path) -> None:
    assert "found nothing there, expected a RocketMQ store: a directory with commitlog/" in refusal(tmp_path / "no")


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert "found a file" in refusal(tmp_path / "file")


def test_an_empty_directory_is_refused(tmp_path: Path) -> None:
    assert "found an empty directory" in refusal(tmp_path)


def test_a_directory_of_something_else_is_refused_with_what_is_in_it(tmp_path: Path) -> None:
    for name in "fedcbag":
        (tmp_path / name).touch()
    assert "found no commitlog/ among a, b, c, d, e, …" in refusal(tmp_path)


def test_directories_of_the_log_under_other_names_are_to_be_told(tmp_path: Path) -> None:
    for name in ("commitlog-a", "commitlog-b", "consumequeue"):
        (tmp_path / name).mkdir()
    assert "but commitlog-a/: the directories of a log that has other names go to --commit-log" in refusal(tmp_path)


def test_the_log_itself_is_refused_as_such(tmp_path: Path) -> None:
    make_store(tmp_path)
    assert "found segments, as if it were a store's commitlog/ itself" in refusal(tmp_path / "commitlog")


def test_a_directory_above_a_store_is_refused_with_the_way_to_it(tmp_path: Path) -> None:
    make_store(tmp_path / "store")
    assert f"but a store in {tmp_path}/store" in refusal(tmp_path)


def test_a_log_without_segments_is_refused(tmp_path: Path) -> None:
    (tmp_path / "commitlog" / "not a segment").mkdir(parents=True)
    assert f"found no segment in {tmp_path}/commitlog" in refusal(tmp_path)


@pytest.mark.parametrize(("kind", "found"), [("file", "a file"), ("nothing", "nothing there")])
def test_a_directory_given_for_the_log_must_be_one(kind: str, found: str, tmp_path: Path) -> None:
    make_store(tmp_path / "store")
    if kind == "file":
        (tmp_path / "log").touch()
    text = refusal(tmp_path / "store", tmp_path / "log")
    assert f"found {found}, expected a directory of the commit log in {tmp_path}/log" in text


@pytest.mark.parametrize("directory", ["consumequeue", "consumequeue_rocksdb"])
@pytest.mark.parametrize("file", ["CURRENT", "MANIFEST-000005"])
def test_queues_in_rocksdb_are_refused(directory: str, file: str, tmp_path: Path) -> None:
    make_store(tmp_path)
    (tmp_path / directory).mkdir(exist_ok=True)
    (tmp_path / directory / file).write_text("MANIFEST-000005\n")
    text = refusal(tmp_path)
    assert f"found queues in RocksDB ({directory}/{file})" in text
    assert "expected queues as files under consumequeue/" in text


def dledger_entry(record: bytes) -> bytes:
    """A DLedger entry: magic, size, index, term, position, channel, chain and body CRC, body size; then the body."""
    head = packed(1, 4) + packed(48 + len(record), 4) + packed(0, 8) + packed(1, 8) + packed(0, 8) + bytes(12)
    return head + packed(len(record), 4) + record


def test_a_log_of_dledger_entries_is_refused(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "plain")
    record = writer.append("T", b"").record
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / SEGMENT).write_bytes(dledger_entry(record).ljust(1024, b"\0"))
    text = refusal(tmp_path)
    assert "found a DLedger log, which is not supported" in text
    assert "expected a commit log of plain records" in text


@pytest.mark.parametrize("with_empty_log", [True, False])
def test_a_dledger_directory_in_the_logs_place_is_refused_as_such(with_empty_log: bool, tmp_path: Path) -> None:
    (tmp_path / "dledger-n0" / "data").mkdir(parents=True)
    if with_empty_log:
        (tmp_path / "commitlog").mkdir()
    assert "found a DLedger log" in refusal(tmp_path)


def convert(root: Path) -> Path:
    """Have the log of a plain store go on as DLedger entries, as a broker that is converted does."""
    record = StoreWriter(root.parent / "other").append("T", b"").record
    ledger = root / "dledger-n0" / "data"
    ledger.mkdir(parents=True)
    (ledger / f"{1024:020d}").write_bytes(dledger_entry(record).ljust(1024, b"\0"))
    return ledger


def test_a_store_that_was_converted_to_dledger_is_refused_with_the_directory_that_is_not_read(tmp_path: Path) -> None:
    make_store(tmp_path / "store")
    ledger = convert(tmp_path / "store")
    found = f"found messages in a DLedger log, which is not supported, in {ledger}; commitlog/ holds older ones at most"
    assert found in refusal(tmp_path / "store")
    assert found in refusal(tmp_path / "store", tmp_path / "store" / "commitlog")
    # What the commands begin with: rebuild, compact and verify; export; doctor; diff.
    for look in (
        lambda store: find_source(store, ()),
        lambda store: find_ranges(str(store)),
        lambda store: find_ranges(store.as_uri().replace("file:", "local:")),
        OpenedStore.open,
        open_log,
    ):
        with pytest.raises(NotAStore, match=f"{ledger.relative_to(tmp_path)}"):
            look(tmp_path / "store")


def test_a_ledger_that_cannot_be_looked_at_may_hold_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_store(tmp_path / "store")
    ledger, listed = convert(tmp_path / "store"), os.scandir

    def scandir(path: "str | os.PathLike[str]") -> object:
        if Path(path) == ledger:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert f"in {ledger}, which cannot be read ({ledger}: cannot be listed: Permission denied)" in refusal(
        tmp_path / "store"
    )


@pytest.mark.parametrize("content", [b"", bytes(4096)])
def test_a_ledger_that_nothing_was_written_to_yet_is_no_reason_to_refuse(content: bytes, tmp_path: Path) -> None:
    make_store(tmp_path)
    (tmp_path / "dledger-n0" / "data").mkdir(parents=True)
    (tmp_path / "dledger-n0" / "data" / SEGMENT).write_bytes(content)
    assert recognise_store(tmp_path).root == tmp_path


@pytest.mark.parametrize("content", [b"", b"\0" * 40, b"\0\0\0\1" + bytes(200), b"\0\0\0\1" + bytes(48)])
def test_a_segment_of_anything_else_is_no_dledger_log(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / SEGMENT).write_bytes(content)
    assert recognise_store(tmp_path).root == tmp_path


def test_a_directory_that_cannot_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_store(tmp_path)

    def refuse(path: Path) -> list[str]:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(os, "listdir", refuse)
        assert "found a directory that cannot be read: Permission denied" in refusal(tmp_path)
    monkeypatch.setattr("storage.layout.store_layout.list_segment_files", _unlistable)
    assert "found a commit log that cannot be read" in refusal(tmp_path)


def _unlistable(path: Path) -> None:
    raise StoreError(path, what="cannot be listed: Permission denied")
