"""A running server sees what a broker appends, new files and directories that are exchanged, without being told."""

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from interop.rocketlens_process import rocketlens_serving
from interop.stages import wait_until
from interop.wire import Frame, ask
from oracles import build_index, read_log
from store_writer import StoreWriter

VIEW_MESSAGE_BY_ID, QUERY_MESSAGE, PULL_MESSAGE = 33, 12, 11
TOPIC = "TopicTest"
SIZES = {"segment_size": 4096, "index_slots": 7, "index_entries": 40, "queue_file_size": 400}

Address = tuple[str, int]


@pytest.fixture
def writer(tmp_path: Path) -> StoreWriter:
    """A store with a few messages, whose broker goes on writing in the test's hands."""
    writer = StoreWriter(tmp_path / "store", **SIZES)  # type: ignore[arg-type]
    writer.set_topic(TOPIC)
    for number in range(5):
        writer.append(TOPIC, b"old", keys=f"old-{number}", tags="TagA")
    writer.flush()
    return writer


@pytest.fixture
def server(writer: StoreWriter, tmp_path: Path) -> Iterator[Address]:
    with rocketlens_serving(writer.root, tmp_path) as address:
        yield address


def query(address: Address, key: str) -> Frame:
    fields = {"topic": TOPIC, "key": key, "maxNum": "32", "beginTimestamp": "0", "endTimestamp": str(2**63 - 1)}
    return ask(address, QUERY_MESSAGE, fields)


def pull(address: Address, queue_offset: int, *, hold_ms: int = 0, timeout_seconds: float = 5.0) -> Frame:
    fields = {
        "consumerGroup": "CG", "topic": TOPIC, "queueId": "0", "queueOffset": str(queue_offset), "maxMsgNums": "32",
        "sysFlag": "6" if hold_ms else "4", "commitOffset": "0", "suspendTimeoutMillis": str(hold_ms),
        "subscription": "*", "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip
    return ask(address, PULL_MESSAGE, fields, timeout_seconds=timeout_seconds)


def test_new_messages_are_answered_by_offset_key_and_pull(writer: StoreWriter, server: Address) -> None:
    for number in range(30):  # over several segments, index files and queue files
        written = writer.append(TOPIC, b"new", keys=f"new-{number}", tags="TagA")
        writer.flush()
        view = {"offset": str(written.physical_offset)}
        wait_until(
            lambda view=view, written=written: ask(server, VIEW_MESSAGE_BY_ID, view).body == written.record,
            f"message {number} by offset",
        )
        wait_until(lambda n=number, w=written: query(server, f"new-{n}").body == w.record, f"message {number} by key")
        wait_until(lambda w=written: pull(server, w.queue_offset).body == w.record, f"message {number} by pull")


def test_a_held_pull_is_answered_when_its_message_comes(writer: StoreWriter, server: Address) -> None:
    answers: list[Frame] = []
    asking = threading.Thread(target=lambda: answers.append(pull(server, 5, hold_ms=20_000, timeout_seconds=30)))
    asking.start()
    written = writer.append(TOPIC, b"awaited", keys="awaited")
    writer.flush()
    asking.join(15)
    assert [answer.body for answer in answers] == [written.record]


def test_a_record_that_is_written_in_two_steps_is_answered_whole_or_not_at_all(
    writer: StoreWriter, server: Address
) -> None:
    written = writer.append(TOPIC, b"x" * 300, keys="halved")
    whole = bytes(written.record)
    writer.overwrite(written.physical_offset + 100, bytes(len(whole) - 100))
    writer.flush()
    view = {"offset": str(written.physical_offset)}
    other = writer.append("Other", b"", queue_id=0)  # behind it: seen once the first one is whole
    assert ask(server, VIEW_MESSAGE_BY_ID, view).code != 0
    writer.overwrite(written.physical_offset, whole)
    writer.flush()
    wait_until(lambda: ask(server, VIEW_MESSAGE_BY_ID, view).body == whole, "the whole record")
    behind = {"offset": str(other.physical_offset)}
    wait_until(lambda: ask(server, VIEW_MESSAGE_BY_ID, behind).body == other.record, "the record behind it")


def test_an_index_directory_that_is_exchanged_is_taken_over(writer: StoreWriter, server: Address) -> None:
    """As a rebuild publishes it: other files, under other names, at once."""
    process = server_process(server)
    index, fresh = writer.root / "index", writer.root / "index.new"
    fresh.mkdir()
    for number, content in enumerate(build_index(read_log(writer.root / "commitlog"), 7, 12)):
        (fresh / f"2026060100000000{number}").write_bytes(content)
    os.rename(index, writer.root / "index.bak")
    os.rename(fresh, index)
    # Nothing is asked meanwhile: what is gone must not wait for a request to be let go.
    wait_until(lambda: f"{index}/" in maps(process) and "index.bak" not in maps(process), "the new index files", 20)
    assert query(server, "old-3").body == writer.written[3].record


def test_expired_files_go_without_an_error_and_without_a_map(writer: StoreWriter, server: Address) -> None:
    process = server_process(server)
    for number in range(60):
        writer.append(TOPIC, b"y" * 200, keys=f"late-{number}")
    writer.flush()
    wait_until(lambda: query(server, "late-59").code == 0, "the last message")
    first = sorted((writer.root / "commitlog").iterdir())[0]
    first.unlink()
    wait_until(lambda: str(first) not in maps(process), "the segment to be let go", 20)
    assert query(server, "late-59").body == writer.written[-1].record
    assert ask(server, VIEW_MESSAGE_BY_ID, {"offset": "0"}).code != 0


@pytest.mark.parametrize("kept", [0, 8192, 20_000])
def test_an_idle_server_survives_a_log_that_is_cut_under_its_map(tmp_path: Path, kept: int) -> None:
    """Its end is looked at by reading: a look at the map would be answered with SIGBUS."""
    writer = StoreWriter(tmp_path / "store", **{**SIZES, "segment_size": 65536})  # type: ignore[arg-type]
    for number in range(100):
        writer.append(TOPIC, b"z" * 400, keys=f"cut-{number}")
    writer.flush()
    segment = writer.root / "commitlog" / f"{0:020d}"
    with rocketlens_serving(writer.root, tmp_path) as server:
        process = server_process(server)
        os.truncate(segment, kept)
        wait_until(lambda: mapped_bytes(process, segment) == -(-kept // 4096) * 4096, "the segment to be mapped anew")
        for written in (writer.written[0], writer.written[30], writer.written[-1]):
            is_left = written.physical_offset + written.size <= kept
            answer = ask(server, VIEW_MESSAGE_BY_ID, {"offset": str(written.physical_offset)})
            assert (answer.code == 0, bytes(answer.body)) == (is_left, written.record if is_left else b"")


def server_process(address: Address) -> Path:
    """/proc of the process that listens there."""
    listening = subprocess.run(["ss", "-ltnpH", f"sport = :{address[1]}"], capture_output=True, text=True, check=True)
    return Path("/proc") / listening.stdout.partition("pid=")[2].partition(",")[0]


def maps(process: Path) -> str:
    return (process / "maps").read_text()


def mapped_bytes(process: Path, path: Path) -> int:
    """How much of a file a process has mapped."""
    lines = [line.split(maxsplit=5) for line in maps(process).splitlines()]
    bounds = [fields[0].split("-") for fields in lines if len(fields) == 6 and fields[5] == str(path)]
    return sum(int(end, 16) - int(start, 16) for start, end in bounds)
