"""On what a broker ends while it starts, by names, sizes and configuration; tests/interop has the brokers."""

from pathlib import Path

import pytest

from storage.layout.store_layout import recognise_store
from storage.layout.timer_log import WHEEL_BYTES
from storage.recovery.start_place import Broker
from storage.recovery.start_refusals import EVERY, FROM_5, Refusal, foretell_refusals
from store_writer import StoreWriter

QUEUE_FILE = 100
OLD = (Broker.UP_TO_4_9,)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    writer = StoreWriter(tmp_path / "store", queue_file_size=QUEUE_FILE, batch_queue_file_size=92, segment_size=4096)
    for _ in range(40):
        writer.append("T", b"x" * 200)
        writer.append_inner_batch("B", [(b"one", {}), (b"two", {})])
    writer.close()
    return writer.root


def refusals(root: Path) -> list[Refusal]:
    return foretell_refusals(recognise_store(root), lambda topic: topic == "B")


def refused_by(root: Path) -> dict[str, tuple[Broker, ...]]:
    """The brokers that refuse each path."""
    return {str(each.path.relative_to(root)): each.brokers for each in refusals(root)}


def test_a_sound_store_is_taken_by_all(root: Path) -> None:
    assert refusals(root) == []
    (root / "timerwheel").write_bytes(b"")
    assert refusals(root) == []


@pytest.mark.parametrize("directory", ["commitlog", "consumequeue/T/0", "batchconsumequeue/B/0"])
def test_an_empty_file_is_refused_unless_it_is_the_last_which_newer_brokers_delete(root: Path, directory: str) -> None:
    first, *_, last = sorted((root / directory).iterdir())
    knows_batches = EVERY if "batch" not in directory else FROM_5
    last.write_bytes(b"")
    assert refused_by(root) == ({f"{directory}/{last.name}": OLD} if knows_batches is EVERY else {})
    first.write_bytes(b"")
    assert refused_by(root)[f"{directory}/{first.name}"] == knows_batches


@pytest.mark.parametrize("directory", ["commitlog", "consumequeue/T/0"])
def test_a_file_of_another_size_and_a_name_that_is_no_number_are_refused_by_all(root: Path, directory: str) -> None:
    first, *_ = sorted((root / directory).iterdir())
    first.write_bytes(first.read_bytes()[:-1])
    (root / directory / "notes").write_bytes(bytes(4096 if directory == "commitlog" else QUEUE_FILE))
    assert refused_by(root) == {f"{directory}/{first.name}": EVERY, f"{directory}/notes": EVERY}


def test_a_directory_is_refused_among_the_files_of_a_queue_by_old_brokers_and_in_the_index_by_newer(root: Path) -> None:
    (root / "consumequeue" / "T" / "0" / "lost+found").mkdir()
    (root / "consumequeue" / "T" / "x").mkdir()
    for name in ("20260101000000999", "20260101000000001000", "notes"):  # the second is no number of 64 bits
        (root / "index" / name).mkdir(parents=True)
    assert refused_by(root) == {"consumequeue/T/0/lost+found": OLD, "index/20260101000000999": FROM_5}


def test_queues_in_the_tree_of_another_type_are_refused(root: Path) -> None:
    found = foretell_refusals(recognise_store(root), lambda topic: topic == "T")
    assert [(each.path.relative_to(root).as_posix(), each.brokers) for each in found] == [
        ("consumequeue/T", FROM_5),
        ("batchconsumequeue/B", FROM_5),
    ]
    assert foretell_refusals(recognise_store(root), None) == []


def test_a_file_of_config_is_refused_where_its_backup_does_not_parse_either(root: Path) -> None:
    config = root / "config"
    (config / "consumerOffset.json").write_bytes(bytes(10))
    assert refusals(root) == []  # without a backup a broker starts as if nothing had been in it
    (config / "consumerOffset.json.bak").write_bytes(b"")
    assert refusals(root) == []
    (config / "consumerOffset.json.bak").write_text("{")
    (config / "consumerOrderInfo.json.bak").write_text("{")
    assert refused_by(root) == {"config/consumerOffset.json": EVERY, "config/consumerOrderInfo.json": FROM_5}
    (config / "consumerOffset.json").write_text("{}")
    assert refused_by(root) == {"config/consumerOrderInfo.json": FROM_5}


def test_timers_of_another_length_are_refused_where_brokers_have_such(root: Path) -> None:
    with (root / "timerwheel").open("wb") as file:
        file.truncate(WHEEL_BYTES)
    assert refusals(root) == []
    with (root / "timerwheel").open("wb") as file:
        file.truncate(WHEEL_BYTES + 1)
    assert refused_by(root) == {"timerwheel": FROM_5}
