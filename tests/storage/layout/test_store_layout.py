"""Which directories are stores, and what a refusal says about those that are none."""

import shutil

import pytest

from protocol.errors import NotAStore
from spark_jobs.read.log_ranges import find_ranges
from spark_jobs.scan.source import find_source
from storage.diff._log_pieces import open_log
from storage.doctor._opened_store import OpenedStore
from storage.store.message_store import MessageStore
from storage.store.store_state import recognise_store
from store_writer import StoreWriter

SEGMENT = "0" * 20


def make_store(root):
    writer = StoreWriter(root)
    writer.append("T", b"hello", keys="k")
    writer.close()
    return root


def refusal(root, *directories):
    with pytest.raises(NotAStore) as refused:
        recognise_store(root, directories)
    text = str(refused.value)
    assert "\n" not in text
    assert text.startswith(f"{root} is no store that can be served: found ")
    assert ", expected " in text
    return text


def test_what_is_no_store_is_refused_with_what_it_is(tmp_path) -> None:
    whole = make_store(tmp_path / "above" / "store")
    (tmp_path / "file").write_text("x")
    for name in ("empty", "letters", "named", "named/commitlog-a", "named/commitlog-b", "named/consumequeue"):
        (tmp_path / name).mkdir()
    for name in "fedcbag":
        (tmp_path / "letters" / name).touch()
    (tmp_path / "bare" / "commitlog" / "not a segment").mkdir(parents=True)
    for root, found in (
        (tmp_path / "no", "found nothing there, expected a RocketMQ store: a directory with commitlog/"),
        (tmp_path / "file", "found a file"),
        (tmp_path / "empty", "found an empty directory"),
        (tmp_path / "letters", "found no commitlog/ among a, b, c, d, e, …"),
        (tmp_path / "named", "but commitlog-a/: the directories of a log that has other names go to --commit-log"),
        (whole / "commitlog", "found segments, as if it were a store's commitlog/ itself"),
        (tmp_path / "above", f"but a store in {whole}"),
        (tmp_path / "bare", f"found no segment in {tmp_path}/bare/commitlog"),
    ):
        assert found in refusal(root)
    for log, found in ((tmp_path / "file", "a file"), (tmp_path / "no", "nothing there")):
        assert f"found {found}, expected a directory of the commit log in {log}" in refusal(whole, log)


@pytest.mark.parametrize(
    ("directory", "file"),
    [("consumequeue", "CURRENT"), ("consumequeue_rocksdb", "MANIFEST-000005"), ("consumequeue", "000010.sst")],
)
def test_a_rocksdb_of_queues_is_known_by_any_of_its_files(directory, file, tmp_path) -> None:
    make_store(tmp_path)
    assert recognise_store(tmp_path).rocksdb_queues is None
    (tmp_path / directory).mkdir(exist_ok=True)
    (tmp_path / directory / file).write_text("MANIFEST-000005\n")
    layout = recognise_store(tmp_path)
    assert layout.rocksdb_queues == tmp_path / directory
    assert "consumequeue" not in layout.missing


def converted(root):
    """A plain store whose log goes on as DLedger's, as that of a broker that becomes a group's member; the latter."""
    writer = StoreWriter(root, segment_size=1024)
    writer.append("T", b"plain", keys="k")
    writer.roll()
    writer.close()
    ledger = StoreWriter(root.parent / "other", segment_size=1024, start=1024, is_ledger=True)
    ledger.append("T", b"in an entry", keys="k", queue_offset=1)
    ledger.close()
    directory = root / "dledger-n0" / "data"
    directory.parent.mkdir()
    (root.parent / "other" / "dledger-n0" / "data").rename(directory)
    return directory


@pytest.mark.parametrize(
    ("path", "content"),
    [("checkpoint", b"endIndex=5\ncommittedIndex=4\n"), (f"index/{SEGMENT}", b"\0\0\0\1" + bytes(28))],
)
def test_entries_that_lie_elsewhere_are_missed_until_their_directory_is_given(tmp_path, path, content) -> None:
    root = tmp_path / "store"
    ledger = converted(root)
    elsewhere = tmp_path / "elsewhere"
    ledger.rename(elsewhere)
    assert MessageStore.open(root).problems == []
    (root / "dledger-n0" / path).parent.mkdir(exist_ok=True)
    (root / "dledger-n0" / path).write_bytes(content)
    (problem,) = MessageStore.open(root).problems
    assert "--commit-log" in problem
    assert str(root / "dledger-n0") in problem
    assert recognise_store(root, [root / "commitlog", elsewhere]).problems == []


def test_a_log_that_goes_on_as_dledgers_is_read_as_one_by_every_command(tmp_path) -> None:
    root = tmp_path / "store"
    ledger = converted(root)
    logs = (root / "commitlog", ledger)
    assert recognise_store(root).commit_log_directories == logs
    assert recognise_store(root).ledgers == (ledger,)
    # What the commands begin with: rebuild, compact and verify; export of a directory and of a URL; doctor; diff.
    bases = [0, 1024]
    assert [place.base_offset for place in find_source(root, ()).segments] == bases
    assert [each.base_offset for each in find_ranges(str(root)).ranges] == bases
    assert [each.base_offset for each in find_ranges(root.as_uri().replace("file:", "local:")).ranges] == bases
    assert [segment.base_offset for segment in OpenedStore.open(root).commit_log.segments] == bases
    assert [segment.base_offset for segment in open_log(root).log.segments] == bases


def test_directories_of_the_log_that_leave_out_a_ledger_are_refused(tmp_path) -> None:
    root = tmp_path / "store"
    ledger = converted(root)
    found = f"found messages in a DLedger log in {ledger}"
    assert found in refusal(root, root / "commitlog")
    layout = recognise_store(root, (root / "commitlog", ledger))
    assert layout.commit_log_directories == (root / "commitlog", ledger)
    assert layout.ledgers == (ledger,)


def test_a_copy_of_several_members_ledgers_is_refused_with_their_names(tmp_path) -> None:
    root = tmp_path / "store"
    ledger = converted(root)
    shutil.copytree(ledger.parent, root / "dledger-n1")
    text = refusal(root)
    assert f"found DLedger logs of several members: {ledger}, {root / 'dledger-n1' / 'data'}" in text
    with pytest.raises(NotAStore, match="DLedger logs of several members"):
        find_ranges(root.as_uri().replace("file:", "local:"))
