"""Files that are cut or die under a server that reads them: it serves on, and says what is wrong."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from blocking_client import BlockingClient, eventually
from process import Serving, serving_process
from protocol.codes import RequestCode
from protocol.command import Command

SEGMENT = f"{0:020}"


@contextmanager
def served_copy(store: Path, tmp_path: Path, *options: str) -> Iterator[tuple[Serving, Path]]:
    """A server of a copy that may be damaged."""
    copy = tmp_path / "copy"
    shutil.copytree(store, copy)
    with serving_process(copy, tmp_path, "--state-dir", str(tmp_path / "state"), *options) as server:
        yield server, copy


def view(server: Serving, offset: int) -> tuple[int, bytes]:
    """Code and body for an offset; asked again on a new connection when the server dies over it."""

    def ask() -> Command | None:
        with contextlib.suppress(ConnectionError), BlockingClient(server.endpoints[0]) as client:
            return client.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(offset)})
        return None

    answer = eventually(ask)
    return answer.code, bytes(answer.body)


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
        eventually(lambda: said in server.errors.read_text())
        assert worker_of(server) == before, "nobody died of it"
        assert server.stop() == 0


def test_who_meets_a_file_that_was_cut_is_told_and_nobody_is_cut_off(g1_store: Path, tmp_path: Path) -> None:
    by_key = {"topic": "TopicTest", "key": "hotkey", "maxNum": "32", "beginTimestamp": "0", "endTimestamp": str(2**62)}
    with served_copy(g1_store, tmp_path) as (server, copy), ExitStack() as stack:
        before = worker_of(server)
        first, second = (stack.enter_context(BlockingClient(server.endpoints[0])) for _ in range(2))
        whole = first.ask(RequestCode.QUERY_MESSAGE, by_key)
        assert (whole.code, bool(whole.body)) == (0, True)
        assert second.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "0"}).code == 0
        for index in (copy / "index").iterdir():
            os.truncate(index, 0)
        met = first.ask(RequestCode.QUERY_MESSAGE, by_key)
        assert (met.code, "a file was cut or could not be read" in str(met.remark)) == (1, True)
        eventually(lambda: first.ask(RequestCode.QUERY_MESSAGE, by_key).code == 0)
        found = first.ask(RequestCode.QUERY_MESSAGE, by_key)
        assert found.body == whole.body, "the log is scanned for what the index had"
        assert second.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "0"}).code == 0
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
