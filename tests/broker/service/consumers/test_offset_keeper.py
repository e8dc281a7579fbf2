"""Committed offsets outlive the server, in a file that a broker understands."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from broker.service.consumers import offset_keeper
from broker.service.consumers.consumer_offsets import ConsumerOffsets
from broker.service.consumers.offset_keeper import FILE, OffsetKeeper
from broker.service.registry_budget import RegistryBudget
from broker.service.state_directory import StateDirectory
from golden_frames import parse_java_json
from offset_stores import OffsetConfig, OffsetStore
from protocol.errors import StoreError


@pytest.fixture
def store() -> Any:
    return OffsetStore(OffsetConfig({("G", "T"): {0: 5, 1: 6}, ("H", "T"): {0: 1}}))


def keep(store: Any, path: Path, **options: Any) -> tuple[ConsumerOffsets, OffsetKeeper]:
    offsets = ConsumerOffsets(store)
    return offsets, OffsetKeeper(offsets, StateDirectory(path), **options)


def content(path: Path) -> Any:
    return parse_java_json((path / FILE).read_text())


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


def test_the_file_of_a_broker_counts_as_it_is(store: Any, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{\n\t"offsetTable":{\n\t\t"T@H":{0:77,\n3:8}\n\t}\n}')
    offsets, keeper = keep(store, tmp_path)
    assert offsets.offsets_of("H", "T") == {0: 77, 3: 8}
    assert offsets.offsets_of("G", "T") == {0: 5, 1: 6}
    keeper.stop()


DAMAGED = [b"", b"{", b"[]", b'{"offsetTable":[]}', b'{"offsetTable":{"T@G":{"x":1}}}', b"\xff\x00"]


@pytest.mark.parametrize("damaged", DAMAGED)
def test_while_the_file_is_none_nobody_is_told_an_offset_that_was_not_committed_since(
    damaged: bytes, store: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE).write_bytes(damaged)
    offsets, keeper = keep(store, tmp_path)
    assert f"{tmp_path / FILE}: is no consumerOffset.json" in caplog.text
    for ask in (
        lambda: offsets.committed("G", "T", 0),
        lambda: offsets.committed("New group", "T", 0),
        lambda: offsets.offsets_of("G", "T"),
        lambda: offsets.topics_of("G"),
        lambda: offsets.groups_of("T"),
        offsets.pairs,
    ):
        with pytest.raises(StoreError, match="it is not known what groups committed here"):
            ask()
    offsets.commit("G", "T", 0, 9)
    assert offsets.committed("G", "T", 0) == 9
    keeper.save()
    assert (tmp_path / FILE).read_bytes() == damaged
    assert len(caplog.messages) == 1
    keeper.stop()
    assert (tmp_path / FILE).read_bytes() == damaged
    assert caplog.messages[-1].startswith("offsets that groups committed since the start are not kept")


@pytest.mark.parametrize("way", ["mended", "taken away"])
def test_when_the_file_can_be_read_again_groups_go_on_where_they_came(way: str, store: Any, tmp_path: Path) -> None:
    _, before = keep(store, tmp_path)
    before._offsets.commit("G", "T", 0, 7)
    before._offsets.commit("G", "T", 1, 8)
    before.stop()
    whole = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(whole[:-20])
    offsets, keeper = keep(store, tmp_path)
    offsets.commit("G", "T", 0, 11)
    if way == "mended":
        (tmp_path / FILE).write_bytes(whole)
    else:
        (tmp_path / FILE).unlink()
    keeper.save()
    assert offsets.offsets_of("G", "T") == {0: 11, 1: 8 if way == "mended" else 6}
    keeper.stop()
    assert content(tmp_path)["offsetTable"]["T@G"]["0"] == 11


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


@pytest.mark.parametrize(("group", "limit"), [("g" * 256, 1 << 20), ("N", 100)])
def test_offsets_that_no_client_could_commit_are_left_out_and_the_file_is_kept(
    group: str, limit: int, store: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    written = f'{{"offsetTable":{{"T@{group}":{{0:77,1:8}}}}}}'
    (tmp_path / FILE).write_text(written)
    offsets = ConsumerOffsets(store)
    offsets.room = RegistryBudget(limit).room("committed offsets", 1)
    keeper = OffsetKeeper(offsets, StateDirectory(tmp_path))
    assert offsets.committed(group, "T", 0) is None
    assert (tmp_path / f"{FILE}.unreadable").read_text() == written
    assert "2 offsets were not taken over from it" in caplog.text
    keeper.stop()
    assert content(tmp_path)["offsetTable"] == {"T@G": {"0": 5, "1": 6}, "T@H": {"0": 1}}


def test_after_a_file_that_took_long_the_next_one_waits(
    store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, keeper = keep(store, tmp_path)
    now, pauses = [0.0], []

    def save() -> None:
        now[0] += 3.0

    def wait(seconds: float) -> bool:
        pauses.append(seconds)
        return len(pauses) == 3

    monkeypatch.setattr(keeper, "save", save)
    monkeypatch.setattr(keeper._stopping, "wait", wait)
    monkeypatch.setattr(offset_keeper.time, "monotonic", lambda: now[0])
    keeper._run()
    assert pauses == [offset_keeper.SAVE_SECONDS, 30.0, 30.0]
