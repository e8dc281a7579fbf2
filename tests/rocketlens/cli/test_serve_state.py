"""What a server process keeps of its consumers' progress: across stops and kills, and for itself alone."""

import contextlib
import os
import signal
from pathlib import Path

import pytest

from base_directory import small_disk
from blocking_client import BlockingClient, eventually
from broker.service.state_directory import StateDirectory
from golden_frames import parse_java_json
from heartbeats import consumer, heartbeat, subscription
from process import serving_process
from protocol.codes import RequestCode
from protocol.command import ext_fields_of
from protocol.errors import RocketLensError
from read_only import as_nobody, reachable_directory

FIELDS = {"consumerGroup": "G", "topic": "TopicTest", "queueId": "1"}


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "xdg"
    monkeypatch.setenv("XDG_STATE_HOME", str(home))
    return home


class Client(BlockingClient):
    def commit(self, offset: int) -> None:
        body = heartbeat("c", consumer("G", subscription("TopicTest")))
        assert self.ask(RequestCode.HEART_BEAT, body=body).code == 0
        assert self.ask(RequestCode.UPDATE_CONSUMER_OFFSET, FIELDS | {"commitOffset": str(offset)}).code == 0

    def committed(self) -> int | None:
        answer = self.ask(RequestCode.QUERY_CONSUMER_OFFSET, FIELDS | {"setZeroIfNotFound": "false"})
        return int(ext_fields_of(answer)["offset"]) if answer.code == 0 else None


def test_a_restart_loses_no_progress_and_the_store_stays_as_it_was(
    g1_store: Path, tmp_path: Path, own_home: Path
) -> None:
    before = {path: path.stat().st_mtime_ns for path in g1_store.rglob("*")}
    with serving_process(g1_store, tmp_path) as server, Client(server.endpoints[0]) as client:
        assert client.committed() is None
        client.commit(7)
        assert server.stop() == 0
    (file,) = own_home.rglob("consumerOffset.json")
    assert parse_java_json(file.read_text())["offsetTable"]["TopicTest@G"] == {"1": 7}
    with serving_process(g1_store, tmp_path) as server, Client(server.endpoints[0]) as client:
        assert client.committed() == 7
    assert {path: path.stat().st_mtime_ns for path in g1_store.rglob("*")} == before


def test_a_kill_leaves_a_whole_file_and_what_was_written_in_it(g1_store: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    serving = (g1_store, tmp_path, "--state-dir", str(state))
    with serving_process(*serving) as server, Client(server.endpoints[0]) as client:
        client.commit(1)
        eventually((state / "consumerOffset.json").exists)
        for offset in range(2, 200):
            client.commit(offset)
        server.process.send_signal(signal.SIGKILL)
        server.process.wait(60)
    written = parse_java_json((state / "consumerOffset.json").read_text())["offsetTable"]["TopicTest@G"]["1"]
    with serving_process(*serving) as server, Client(server.endpoints[0]) as client:
        assert client.committed() == written >= 1


def test_a_home_that_is_a_file_is_no_reason_not_to_serve(g1_store: Path, tmp_path: Path, own_home: Path) -> None:
    own_home.write_text("")
    with serving_process(g1_store, tmp_path) as server, Client(server.endpoints[0]) as client:
        client.commit(3)
        assert client.committed() == 3
        assert "give --state-dir" in server.errors.read_text()


FULL = "offsets cannot be kept: No space left on device"


def test_a_server_whose_state_has_no_room_serves_on_and_writes_when_there_is(g1_store: Path, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as give:
        state = give("size=16k,nr_inodes=100") / "state"
        (state.parent / "filler").write_bytes(bytes(16_384))
        serving = (g1_store, tmp_path, "--state-dir", str(state))
        with serving_process(*serving) as server, Client(server.endpoints[0]) as client:
            client.commit(5)
            eventually(lambda: FULL in server.errors.read_text())
            client.commit(6)
            assert client.committed() == 6
            assert {path.name for path in state.iterdir()} <= {"serving.lock", "consumerOffset.json.new"}
            give("size=1m,nr_inodes=100")
            eventually((state / "consumerOffset.json").exists)
            client.commit(7)
            assert server.stop() == 0
            assert server.errors.read_text().count("No space left on device") == 1
        with serving_process(*serving) as server, Client(server.endpoints[0]) as client:
            assert client.committed() == 7


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can become somebody else")
@pytest.mark.parametrize("first", ["root", "nobody"])
def test_a_state_directory_of_another_user_is_refused_with_its_owner(first: str) -> None:
    def keep() -> str:
        with contextlib.closing(StateDirectory(root / "state")) as directory:
            directory.write("consumerOffset.json", b"{}")
        return "kept"

    def as_root() -> str:
        try:
            return keep()
        except RocketLensError as error:
            return str(error)

    def as_stranger() -> str:
        return as_nobody(keep)

    def files() -> list[tuple[str, int, int]]:
        found = [(path.name, path.stat()) for path in (root / "state").iterdir()]
        return sorted((name, status.st_uid, status.st_mtime_ns) for name, status in found)

    with reachable_directory() as root:
        root.chmod(0o777)
        one, other = (as_root, as_stranger) if first == "root" else (as_stranger, as_root)
        assert one() == "kept"
        before = files()
        owner, stranger = ("root (0)", "nobody (65534)") if first == "root" else ("nobody (65534)", "root (0)")
        assert f"belongs to user {owner}, and this runs as user {stranger}" in other()
        assert files() == before
