"""A verification of a store in an object store finds what it finds of the same store on a disk, whatever goes wrong."""

import shutil

import msgspec
import pytest

from protocol.errors import ConfigError, NotAStore
from spark_jobs.places import remote_file
from store_writer import StoreWriter
from verifying import flip, in_memory, told, verify_here, verify_in_memory


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_file, "FIRST_PAUSE_SECONDS", 0)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    root = tmp_path_factory.mktemp("written") / "store"
    with StoreWriter(root, segment_size=4096, queue_file_size=400) as writer:
        for number in range(100):
            topic = ("Orders", "Payments")[number % 2]
            writer.append(topic, b"body %d" % number, keys=f"k{number}", tags="t")
    return root


@pytest.fixture
def store(written, tmp_path):
    shutil.copytree(written, tmp_path / "store")
    return tmp_path / "store"


def facts(report):
    report.seconds = report.steady_seconds = 0
    return msgspec.to_builtins(report)


def files(store, tree):
    return sorted(path for path in (store / tree).rglob("*") if path.is_file())


DAMAGES = {
    "nothing": lambda _store: None,
    "a segment is gone": lambda store: files(store, "commitlog")[1].unlink(),
    "an index entry": lambda store: flip(files(store, "index")[0], 40 + 4 * 13 + 20 * 5 + 3),
    "a queue unit": lambda store: flip(files(store, "consumequeue")[0], 7),
    "a queue is gone": lambda store: shutil.rmtree(store / "consumequeue" / "Orders"),
    "foreign files": lambda store: (store / "commitlog" / "core.1").write_bytes(b"x"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_report_is_that_of_the_same_store_on_a_disk(store, tmp_path, damage) -> None:
    DAMAGES[damage](store)
    expected = verify_here(store, tmp_path / "work")
    found = verify_in_memory(store, tmp_path / "work")
    assert facts(found) == facts(expected), told(found)
    assert (expected.exit_code == 0) == (damage in ("nothing", "foreign files"))


def test_a_url_that_holds_no_store_is_named(store, tmp_path) -> None:
    with in_memory(store) as url:
        with pytest.raises(NotAStore, match=f"^{url}/none is no store that can be served: found nothing there"):
            verify_here(f"{url}/none", tmp_path)
        with pytest.raises(NotAStore, match=f"^{url}/commitlog is no store that can be served: found segments, as if"):
            verify_here(f"{url}/commitlog", tmp_path)
        with pytest.raises(ConfigError, match="the log must lie in the store"):
            verify_here(url, tmp_path, commit_log_directories=("/elsewhere",))
