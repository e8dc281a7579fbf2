"""A running RocketLens server reads on while a store is published into, and takes over the new files at a signal."""

import shutil
import signal
import socket
import time
from pathlib import Path

from process import Serving, serving_process
from protocol.command import Command, decode_command, encode_request
from protocol.frame import FrameDecoder
from protocol.question import Question
from publishing import TIME
from spark_jobs.publish.publish import Staged, publish
from spark_jobs.publish.store_lock import StoreLock
from storage.store.message_store import MessageStore
from store_tour import tour

QUERY, PULL = 12, 11
WINDOW = {"maxNum": "64", "beginTimestamp": "0", "endTimestamp": "9" * 18}
READ_ANEW = "the store was reopened"
NAMES = ("consumequeue", "index")


def damaged_copy(store: Path, directory: Path) -> tuple[Path, list[Staged]]:
    """A copy of a store with one index file and no queues left, and the whole ones staged beside it."""
    copy, staged = directory / "store", directory / "staged"
    shutil.copytree(store, copy)
    for name in NAMES:
        shutil.copytree(store / name, staged / name)
    shutil.rmtree(copy / "consumequeue")
    for path in sorted((copy / "index").iterdir())[1:]:
        path.unlink()
    return copy, [Staged(name, staged / name) for name in NAMES]


def publish_whole(store: Path, staged: list[Staged]) -> None:
    with StoreLock(store) as lock:
        publish(lock, staged, store.parent / "journal", TIME)


def test_an_open_store_keeps_answering_and_has_the_new_files_after_a_refresh(g1_store: Path, tmp_path: Path) -> None:
    copy, staged = damaged_copy(g1_store, tmp_path)
    truth = MessageStore.open(g1_store)
    store = MessageStore.open(copy)
    query = Question("TopicTest", "hotkey")
    assert store.queues.is_lost
    before = store.query(query)
    publish_whole(copy, staged)
    # What was opened before stays readable: its files have other names now, and lie in the backup.
    assert store.query(query).records == before.records == truth.query(query).records
    store.refresh()
    assert [file.index.name for file in store.snapshot.index.files] == [
        file.index.name for file in truth.snapshot.index.files
    ]
    assert store.snapshot.index.last_update == truth.snapshot.index.last_update
    assert store.query(query).search == truth.query(query).search
    assert not store.queues.is_lost
    assert tour(store) == tour(truth)
    assert list(store.queues.topics()) == list(truth.queues.topics())


def ask(server: Serving, code: int, **fields: str) -> Command:
    """One request and its answer."""
    decoder = FrameDecoder()
    with socket.create_connection(server.endpoints[0]) as connection:
        connection.sendall(encode_request(code, fields, opaque=1))
        while True:
            data = connection.recv(65536)
            assert data, "the server closed the connection"
            for frame in decoder.feed(data):
                return decode_command(frame)


def mapped_inodes(server: Serving) -> set[int]:
    (worker,) = server.workers
    lines = Path(f"/proc/{worker}/maps").read_text().splitlines()
    return {int(line.split(None, 5)[4]) for line in lines}


def hang_up(server: Serving) -> None:
    """Have the server look at its store, and wait until it says that it has."""
    times = server.errors.read_text().count(READ_ANEW)
    server.process.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + 60
    while server.errors.read_text().count(READ_ANEW) == times:
        assert time.monotonic() < deadline, server.errors.read_text()
        time.sleep(0.01)


def test_a_server_takes_over_what_was_published_without_restart(g1_store: Path, tmp_path: Path) -> None:
    copy, staged = damaged_copy(g1_store, tmp_path)
    pull = {"consumerGroup": "g", "topic": "TopicTest", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32",
            "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*",
            "subVersion": "0", "expressionType": "TAG"}  # fmt: skip
    with serving_process(copy, tmp_path) as server:
        before = ask(server, QUERY, topic="TopicTest", key="hotkey", **WINDOW)
        assert before.code == 0
        derived = ask(server, PULL, **pull)
        # The server maps the store's files, but cannot write to them: it is no reason to refuse.
        publish_whole(copy, staged)
        assert ask(server, QUERY, topic="TopicTest", key="hotkey", **WINDOW).body == before.body
        hang_up(server)
        assert ask(server, QUERY, topic="TopicTest", key="hotkey", **WINDOW).body == before.body
        pulled = ask(server, PULL, **pull)
        assert (pulled.code, pulled.body) == (derived.code, derived.body) == (0, derived.body or b"none")
        files = [*(copy / "index").iterdir(), *(copy / "consumequeue" / "TopicTest" / "0").iterdir()]
        published = {path.stat().st_ino for path in files}
        assert published <= mapped_inodes(server)
        # The old files can be dropped under it, too.
        shutil.rmtree(copy / f"index.bak-{TIME}")
        assert ask(server, QUERY, topic="TopicTest", key="hotkey", **WINDOW).body == before.body
        assert server.stop() == 0
