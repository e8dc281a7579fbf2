"""Committed offsets outlive the server, in a file that a broker understands."""

import json
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from broker.consumers.consumer_offsets import ConsumerOffsets
from broker.consumers.offset_keeper import FILE, OffsetKeeper
from broker.state_directory import StateDirectory
from golden_frames import parse_java_json


@dataclass
class Config:
    """The part of a store's configuration that matters here."""

    consumer_offsets: dict[tuple[str, str], dict[int, int]] = field(default_factory=dict)
    pull_offsets: dict[tuple[str, str], dict[int, int]] = field(default_factory=dict)


@dataclass
class Store:
    config: Config


@pytest.fixture
def store() -> Any:
    return Store(Config({("G", "T"): {0: 5, 1: 6}, ("H", "T"): {0: 1}}))


def keep(store: Any, path: Path, **options: Any) -> tuple[ConsumerOffsets, OffsetKeeper]:
    offsets = ConsumerOffsets(store)
    return offsets, OffsetKeeper(offsets, StateDirectory(path), **options)


def content(path: Path) -> Any:
    return parse_java_json((path / FILE).read_text())


def test_what_was_committed_is_there_again_after_a_restart(store: Any, tmp_path: Path) -> None:
    offsets, keeper = keep(store, tmp_path)
    offsets.commit("G", "T", 0, 9)
    offsets.commit("New group", "T", 2, 3)
    keeper.stop()
    offsets, keeper = keep(store, tmp_path)
    assert offsets.offsets_of("G", "T") == {0: 9, 1: 6}
    assert offsets.committed("New group", "T", 2) == 3
    keeper.stop()


def test_the_file_holds_all_groups_in_a_brokers_own_form(store: Any, tmp_path: Path) -> None:
    offsets, keeper = keep(store, tmp_path)
    offsets.commit("G", "T", 0, 9)
    keeper.stop()
    text = (tmp_path / FILE).read_text()
    assert '"T@G":{0:9,1:6}' in text, "queue ids stand without quotes, as fastjson writes them"
    value = content(tmp_path)
    assert value["offsetTable"] == {"T@G": {"0": 9, "1": 6}, "T@H": {"0": 1}}
    assert value["dataVersion"].keys() == {"counter", "stateVersion", "timestamp"}
    assert value["committedHere"] == ["T@G"]


def test_names_that_json_must_escape_come_back(store: Any, tmp_path: Path) -> None:
    offsets, keeper = keep(store, tmp_path)
    odd = 'a"b\\c\n{1:2}组😀'
    offsets.commit(odd, "T", 0, 9)
    keeper.stop()
    offsets, keeper = keep(store, tmp_path)
    assert offsets.committed(odd, "T", 0) == 9
    keeper.stop()


def test_what_only_the_store_recorded_may_move_on_there(store: Any, tmp_path: Path) -> None:
    offsets, keeper = keep(store, tmp_path)
    offsets.commit("G", "T", 0, 9)
    keeper.stop()
    store.config = Config({("G", "T"): {0: 50, 1: 60}, ("H", "T"): {0: 100}})
    offsets, keeper = keep(store, tmp_path)
    assert offsets.committed("H", "T", 0) == 100
    assert offsets.committed("G", "T", 0) == 9
    keeper.stop()


def test_the_file_of_a_broker_counts_as_it_is(store: Any, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{\n\t"offsetTable":{\n\t\t"T@H":{0:77,\n3:8}\n\t}\n}')
    offsets, keeper = keep(store, tmp_path)
    assert offsets.offsets_of("H", "T") == {0: 77, 3: 8}
    assert offsets.offsets_of("G", "T") == {0: 5, 1: 6}
    keeper.stop()


@pytest.mark.parametrize(
    "damaged", [b"", b"{", b"[]", b'{"offsetTable":[]}', b'{"offsetTable":{"T@G":{"x":1}}}', b"\xff\x00"]
)
def test_a_file_that_is_none_is_set_aside_and_told(
    damaged: bytes, store: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE).write_bytes(damaged)
    offsets, keeper = keep(store, tmp_path)
    assert offsets.offsets_of("G", "T") == {0: 5, 1: 6}
    assert (tmp_path / f"{FILE}.unreadable").read_bytes() == damaged
    assert "groups go on where the store left them" in caplog.text
    keeper.stop()


def test_nothing_is_written_while_nothing_changes(store: Any, tmp_path: Path) -> None:
    offsets, keeper = keep(store, tmp_path)
    keeper.save()
    assert not (tmp_path / FILE).exists()
    offsets.commit("G", "T", 0, 9)
    keeper.save()
    first = (tmp_path / FILE).read_bytes()
    offsets.commit("G", "T", 0, 9)
    keeper.save()
    assert (tmp_path / FILE).read_bytes() == first
    keeper.stop()
    offsets, keeper = keep(store, tmp_path)
    keeper.stop()
    assert (tmp_path / FILE).read_bytes() == first


def test_changes_are_written_while_the_server_runs(store: Any, tmp_path: Path) -> None:
    offsets, keeper = keep(store, tmp_path, interval_seconds=0.01)
    keeper.start()
    offsets.commit("G", "T", 0, 9)
    deadline = time.monotonic() + 20
    while not (tmp_path / FILE).exists():
        assert time.monotonic() < deadline
        time.sleep(0.005)
    assert content(tmp_path)["offsetTable"]["T@G"]["0"] == 9
    keeper.stop()


def test_a_full_disk_is_told_once_and_tried_again(
    store: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets, keeper = keep(store, tmp_path)
    offsets.commit("G", "T", 0, 9)
    with monkeypatch.context() as patch:

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        patch.setattr(StateDirectory, "write", full)
        keeper.save()
        keeper.save()
    assert caplog.text.count("No space left") == 1
    keeper.stop()
    assert content(tmp_path)["offsetTable"]["T@G"]["0"] == 9


def test_commits_of_several_threads_while_it_writes_are_all_there_at_the_end(store: Any, tmp_path: Path) -> None:
    offsets, keeper = keep(store, tmp_path, interval_seconds=0.001)
    keeper.start()

    def commit(group: str) -> None:
        for offset in range(1, 300):
            offsets.commit(group, "T", offset % 7, offset)

    threads = [threading.Thread(target=commit, args=(f"G{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    keeper.stop()
    expected = {str(queue_id): max(n for n in range(1, 300) if n % 7 == queue_id) for queue_id in range(7)}
    table = json.loads(json.dumps(content(tmp_path)["offsetTable"]))
    assert all(table[f"T@G{number}"] == expected for number in range(4))
