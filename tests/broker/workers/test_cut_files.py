"""Files that are cut or die under a server that reads them: it serves on, and says what is wrong."""

import os
import random
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from process import Serving, serving_process
from protocol.codes import RequestCode
from protocol.command import Command, decode_command, encode_request
from protocol.frame import FrameDecoder

SEGMENT = f"{0:020}"
START, SIZE = 6581, 289
"""Where hot0 of produced.tsv lies."""
DEADLINE_SECONDS = 60.0


@contextmanager
def served_copy(store: Path, tmp_path: Path, *options: str) -> Iterator[tuple[Serving, Path]]:
    """A server of a copy that may be damaged."""
    copy = tmp_path / "copy"
    shutil.copytree(store, copy)
    with serving_process(copy, tmp_path, "--state-dir", str(tmp_path / "state"), *options) as server:
        yield server, copy


def view(server: Serving, offset: int) -> tuple[int, bytes]:
    """Code and body for an offset; asked again on a new connection when the server dies over it."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        try:
            with socket.create_connection(server.endpoints[0], DEADLINE_SECONDS) as connection:
                connection.sendall(encode_request(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(offset)}, opaque=1))
                decoder = FrameDecoder()
                while data := connection.recv(65536):
                    for frame in decoder.feed(data):
                        command = decode_command(frame)
                        return command.code, bytes(command.body)
        except ConnectionError:
            pass
        assert time.monotonic() < deadline


def worker_of(server: Serving) -> int:
    """The process of the one worker there is; 0 while it is being replaced."""
    return next(iter(server.workers), 0)


def test_a_segment_cut_under_load_is_served_as_far_as_it_goes(g1_store: Path, tmp_path: Path) -> None:
    with served_copy(g1_store, tmp_path) as (server, copy):
        offsets = record_offsets(copy)
        before = worker_of(server)
        whole = {offset: view(server, offset) for offset in offsets}
        assert all(code == 0 for code, _ in whole.values())
        cut = offsets[len(offsets) // 2] // 4096 * 4096
        os.truncate(copy / "commitlog" / SEGMENT, cut)
        answers = {offset: view(server, offset) for offset in offsets}
        for offset in offsets:
            if offset + len(whole[offset][1]) <= cut:
                assert answers[offset] == whole[offset]
            else:
                assert answers[offset][0] != 0 or answers[offset] == whole[offset]
        said = f"no segment holds physical offsets {cut} to"
        deadline = time.monotonic() + DEADLINE_SECONDS
        while said not in (tmp_path / "stderr").read_text():
            assert time.monotonic() < deadline, (tmp_path / "stderr").read_text()
            time.sleep(0.05)
        assert worker_of(server) == before, "nobody died of it"
        assert server.stop() == 0


def call(connection: socket.socket, code: RequestCode, **fields: str) -> Command:
    """One answer on a connection that stays open."""
    connection.sendall(encode_request(code, fields, opaque=1))
    decoder = FrameDecoder()
    while True:
        data = connection.recv(65536)
        assert data, "the connection was closed"
        for frame in decoder.feed(data):
            return decode_command(frame)


def test_who_meets_a_file_that_was_cut_is_told_and_nobody_is_cut_off(g1_store: Path, tmp_path: Path) -> None:
    by_key = {"topic": "TopicTest", "key": "hotkey", "maxNum": "32", "beginTimestamp": "0", "endTimestamp": str(2**62)}
    with served_copy(g1_store, tmp_path) as (server, copy), ExitStack() as stack:
        before = worker_of(server)
        clients = [stack.enter_context(socket.create_connection(server.endpoints[0], DEADLINE_SECONDS)) for _ in "ab"]
        whole = call(clients[0], RequestCode.QUERY_MESSAGE, **by_key)
        assert (whole.code, bool(whole.body)) == (0, True)
        assert call(clients[1], RequestCode.VIEW_MESSAGE_BY_ID, offset=str(START)).code == 0
        for index in (copy / "index").iterdir():
            os.truncate(index, 0)
        met = call(clients[0], RequestCode.QUERY_MESSAGE, **by_key)
        assert (met.code, "a file was cut or could not be read" in str(met.remark)) == (1, True)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while (found := call(clients[0], RequestCode.QUERY_MESSAGE, **by_key)).code:
            assert time.monotonic() < deadline
        assert found.body == whole.body, "the log is scanned for what the index had"
        assert call(clients[1], RequestCode.VIEW_MESSAGE_BY_ID, offset=str(START)).code == 0
        assert worker_of(server) == before
        assert server.stop() == 0


def record_offsets(store: Path) -> list[int]:
    """Where records of the log begin, in steps."""
    offsets, position = [], 0
    with (store / "commitlog" / SEGMENT).open("rb") as segment:
        while len(offsets) < 300:
            segment.seek(position)
            size = int.from_bytes(segment.read(4))
            if not size or int.from_bytes(segment.read(4), signed=True) != -626843481:
                break
            offsets.append(position)
            position += size
    assert len(offsets) > 100
    return offsets


@pytest.mark.soak
def test_files_cut_again_and_again_under_load_end_no_service(g1_store: Path, tmp_path: Path) -> None:
    chooser = random.Random(17)
    with served_copy(g1_store, tmp_path) as (server, copy):
        original = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file() and path.stat().st_size}
        offsets = record_offsets(copy)
        whole = {offset: view(server, offset) for offset in offsets}
        assert all(code == 0 for code, _ in whole.values())
        for _ in range(50):
            path = chooser.choice(sorted(original))
            cut = chooser.randrange(len(original[path]))
            os.truncate(path, cut)
            left = cut if path.name == SEGMENT and path.parent.name == "commitlog" else 2**62
            for offset in chooser.sample(offsets, 40):
                answer = view(server, offset)
                assert answer == whole[offset] or (offset + len(whole[offset][1]) > left and answer[0] != 0), path
            # Put back in place, as a restored backup would be.
            path.with_suffix(".back").write_bytes(original[path])
            path.with_suffix(".back").replace(path)
        server.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while any(view(server, offset)[0] for offset in offsets):
            assert time.monotonic() < deadline
        assert server.stop() == 0
