"""A verification of a store in an object store finds what it finds of the same store on a disk, whatever goes wrong."""

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import msgspec
import pytest

from object_store import FAULTS, FaultPlan, ObjectStore
from protocol.errors import ConfigError, NotAStore
from spark_jobs.doctor.deep_request import DeepDetails
from spark_jobs.places import remote_file
from spark_jobs.run.report import Report
from store_writer import StoreWriter
from verifying import named_as, told, upload, verify_here, verify_in_memory

NUMBERS = itertools.count()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_file, "FIRST_PAUSE_SECONDS", 0)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with several segments and index files, and queues of two topics."""
    root = tmp_path_factory.mktemp("written") / "store"
    writer = StoreWriter(root, segment_size=4096, queue_file_size=400)
    for number in range(100):
        topic = ("Orders", "Payments")[number % 2]
        writer.append(topic, b"body %d" % number, keys=f"k{number}", tags="t")
    writer.close()
    return root


@pytest.fixture
def store(written: Path, tmp_path: Path) -> Path:
    shutil.copytree(written, tmp_path / "store")
    return tmp_path / "store"


def put(objects: ObjectStore, store: Path) -> str:
    """Copy a store into the bucket under a new name."""
    return objects.put(store, f"store-{next(NUMBERS)}")


def facts(report: Report[DeepDetails]) -> object:
    """A report without times."""
    report.seconds = report.steady_seconds = 0
    return msgspec.to_builtins(report)


def files(store: Path, tree: str) -> list[Path]:
    return sorted(path for path in (store / tree).rglob("*") if path.is_file())


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def flip_record(path: Path) -> None:
    """Another byte in the first body of a segment."""
    flip(path, path.read_bytes().index(b"body"))


DAMAGES: dict[str, Callable[[Path], None]] = {
    "nothing": lambda _store: None,
    "a record": lambda store: flip_record(files(store, "commitlog")[1]),
    "a segment is gone": lambda store: files(store, "commitlog")[1].unlink(),
    "an index entry": lambda store: flip(files(store, "index")[0], 40 + 4 * 13 + 20 * 5 + 3),
    "no index": lambda store: shutil.rmtree(store / "index"),
    "an index file is cut": lambda store: files(store, "index")[0].write_bytes(b"short"),
    "a queue unit": lambda store: flip(files(store, "consumequeue")[0], 7),
    "a queue is gone": lambda store: shutil.rmtree(store / "consumequeue" / "Orders"),
    "no configuration": lambda store: shutil.rmtree(store / "config", ignore_errors=True),
    "a crash": lambda store: (store / "abort").write_bytes(b"123"),
    "foreign files": lambda store: (store / "commitlog" / "core.1").write_bytes(b"x"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_report_is_that_of_the_same_store_on_a_disk(store: Path, tmp_path: Path, damage: str) -> None:
    DAMAGES[damage](store)
    expected = verify_here(store, tmp_path / "work")
    found = verify_in_memory(store, tmp_path / "work")
    assert facts(found) == facts(expected), told(found)
    assert (expected.exit_code == 0) == (damage in ("nothing", "a crash", "no configuration", "foreign files"))


def test_answers_that_are_refused_cut_or_short_change_nothing(
    objects: ObjectStore, store: Path, tmp_path: Path
) -> None:
    flip_record(files(store, "commitlog")[1])
    flip(files(store, "consumequeue")[0], 7)
    url, plan = put(objects, store), FaultPlan(1, share=0.4)
    with objects.behind(plan) as faulty:
        found = named_as(verify_here(url, tmp_path / "work", storage=faulty.options), url, store)
    assert facts(found) == facts(verify_here(store, tmp_path / "work")), told(found)
    assert set(plan.done) == set(FAULTS)


@pytest.fixture
def url(store: Path) -> Iterator[str]:
    yield "memory://rocketlens-verify-url"
    fsspec.filesystem("memory").rm("memory://rocketlens-verify-url", recursive=True)


def test_a_url_that_holds_no_store_is_named(url: str, store: Path, tmp_path: Path) -> None:
    upload(store, url)
    with pytest.raises(NotAStore, match=f"^{url}/none is no store that can be served: found nothing there"):
        verify_here(f"{url}/none", tmp_path)
    with pytest.raises(NotAStore, match=f"^{url}/commitlog is no store that can be served: found segments, as if"):
        verify_here(f"{url}/commitlog", tmp_path)
    with pytest.raises(ConfigError, match="the log must lie in the store"):
        verify_here(url, tmp_path, commit_log_directories=("/elsewhere",))


def test_a_log_that_goes_on_in_a_ledger_is_read_as_on_a_disk(url: str, store: Path, tmp_path: Path) -> None:
    ledger = store / "dledger-n0" / "data" / "00000000000000008192"
    ledger.parent.mkdir(parents=True)
    ledger.write_bytes(bytes(8192))
    upload(store, url)
    assert verify_here(url, tmp_path).messages == 100
    shutil.rmtree(ledger.parent)
    shutil.move(store / "commitlog", ledger.parent)
    upload(store, url)
    fsspec.filesystem("memory").rm(f"{url}/commitlog", recursive=True)
    assert verify_here(url, tmp_path).messages == 100


def test_a_ledger_is_verified_whole_with_its_elections_and_damage(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store", segment_size=4096, is_ledger=True)
    for number in range(80):
        writer.append("T", b"x" * (number * 3), keys=f"k{number}", tags="A", unique_key=f"u{number}")
        if number % 6 == 0:
            writer.log.write_empty_entry()
    writer.log.write_empty_entry(3, b"n0-127.0.0.1:40911")
    writer.close()
    report = verify_here(writer.root, tmp_path)
    assert (report.messages, report.exit_code, report.details.findings) == (80, 0, [])
    assert verify_in_memory(writer.root, tmp_path).messages == 80
    bad = writer.written[50]
    writer.overwrite(bad.physical_offset - 48, b"\xff")
    report = verify_here(writer.root, tmp_path)
    assert report.messages == 80
    assert report.exit_code == 4
