"""A queue that is checked in parts is found to be what one task finds it to be, whatever is wrong with it."""

from pathlib import Path

import msgspec
import pytest

from spark_jobs.build import split_queues
from spark_jobs.doctor import _queue_tasks
from spark_jobs.places.remote_file import RemoteFile
from storage.doctor.finding import Kind
from store_writer import StoreWriter
from verifying import assert_clean, damaged, findings_of, replaced, told, verify_here, verify_in_memory

FILE = 400
MESSAGES = 300
START = 1_700_000_000_000


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_queues, "LEAST_UNITS", 20)
    monkeypatch.setattr(split_queues, "SEGMENTS_AT_ONCE", 2)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("hot") / "store")


def written(root: Path) -> Path:
    with StoreWriter(root, segment_size=4096, queue_file_size=FILE) as writer:
        for number in range(MESSAGES):
            writer.append("Hot", b"body", tags=f"t{number}", store_timestamp=START + number)
            if number % 10 == 0:
                writer.append("Cold", queue_id=number % 3, store_timestamp=START + number)
    return root


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    seen: list[bool] = []
    joined = _queue_tasks._joined

    def remembered(parts, stop):
        seen.extend(part["is_clean"] for _, part in parts)
        return joined(parts, stop)

    monkeypatch.setattr(_queue_tasks, "_joined", remembered)
    return seen


def both(store, work):
    """Verify in parts; the same as by one task, but for the order of findings."""
    report = verify_here(store, work)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(split_queues, "LEAST_UNITS", 1 << 30)
        whole = verify_here(store, work)
    every = [sorted(map(msgspec.json.encode, findings_of(each))) for each in (report, whole)]
    assert every[0] == every[1], told(whole)
    assert report.details.counts == whole.details.counts
    assert report.details.queues == whole.details.queues
    assert (report.notes, report.exit_code, report.units) == (whole.notes, whole.exit_code, whole.units)
    return report


def files_of(store: Path) -> list[Path]:
    return sorted((store / "consumequeue" / "Hot" / "0").iterdir())


@pytest.mark.parametrize("unit", [None, 150])
def test_of_a_queue_behind_a_url_each_task_fetches_what_it_reads(store, tmp_path, monkeypatch, checked, unit) -> None:
    """A file in which a part ends is fetched for the next one, too; the first and the last are by what joins them."""
    fetched: list[str] = []
    fetch = RemoteFile.copy_pieces

    def remembered(source, file, pieces) -> None:
        if "/Hot/" in source.path:
            assert list(pieces) == [(0, source.size)]
            fetched.append(Path(source.path).name)
        fetch(source, file, pieces)

    monkeypatch.setattr(RemoteFile, "copy_pieces", remembered)
    names = [path.name for path in files_of(store)]
    if unit is None:
        assert_clean(verify_in_memory(store, tmp_path))
        behind = []
    else:
        path = files_of(store)[unit * 20 // FILE]
        with damaged(path, unit * 20 % FILE, b"\x01\x02"):
            [finding] = findings_of(verify_in_memory(store, tmp_path))
        assert finding.kind == Kind.UNIT
        behind = names[unit * 20 // FILE :]
    assert set(fetched) == set(names)
    assert len(checked) > 2
    assert len(fetched) <= len(names) + len(behind) + len(checked) + 1 < len(checked) * len(names)


DAMAGES = {
    "a file in the middle is gone": lambda store: (files_of(store)[6], None),
    "a file is cut": lambda store: (files_of(store)[5], files_of(store)[5].read_bytes()[:130]),
    "units stand before their places": lambda store: (
        files_of(store)[6], files_of(store)[6].read_bytes()[20:] + bytes(20)
    ),
    "units behind the end": lambda store: (
        files_of(store)[-1].with_name(f"{MESSAGES * 20:020d}"), files_of(store)[2].read_bytes()
    ),
    "a record is damaged": lambda store: (
        sorted((store / "commitlog").iterdir())[1],
        sorted((store / "commitlog").iterdir())[1].read_bytes().replace(b"body", b"bady", 3),
    ),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_what_is_damaged_or_gone_is_found_as_by_one_task(tmp_path, damage) -> None:
    store = written(tmp_path / "store")
    path, content = damage(store)
    path.touch()
    with replaced(path, content):
        report = both(store, tmp_path)
    assert findings_of(report) or report.details.queues.expired
