"""`rocketlens serve --register` as processes: every store is registered, again by a new worker, and unregistered."""

import os
import signal
from pathlib import Path

from blocking_client import eventually
from name_server import NameServer, name_server_in_a_thread
from process import serving_process
from protocol.codes import RequestCode
from store_writer import StoreWriter


def entries(name_server: NameServer, code: int) -> list[tuple[str, str, str]]:
    """Broker name, id and address of each request of a code, in order."""
    names = ("brokerName", "brokerId", "brokerAddr")
    return [(*(fields[name] for name in names),) for fields, _ in name_server.received(code)]  # type: ignore[misc]


def test_each_store_is_registered_again_when_a_worker_was_replaced_and_taken_off_at_the_end(
    g1_store: Path, tmp_path: Path
) -> None:
    writer = StoreWriter(tmp_path / "second")
    writer.append("Other")
    writer.close()
    names = ("--broker-name", "broker-a", "--broker-name", "broker-b")
    options = ("--workers", "2", *names, "--state-dir", str(tmp_path / "state"))
    with (
        name_server_in_a_thread() as (name_server, address),
        serving_process(g1_store, tmp_path, str(writer.root), *options, "--register", f";{address};") as server,
    ):
        places = zip(("broker-a", "broker-b"), server.places, strict=True)
        wanted = {(name, "990001", str(endpoint)) for name, (_, (endpoint, *_)) in places}

        def is_registered(times: int) -> bool:
            requests = entries(name_server, RequestCode.REGISTER_BROKER)
            return all(requests.count(entry) == times for entry in wanted)

        eventually(lambda: is_registered(1))
        os.kill(server.workers[0], signal.SIGKILL)
        eventually(lambda: is_registered(2))
        # A line is logged only when the name server's answer has come back, later than it has the request.
        eventually(lambda: server.errors.read_text().count("registered with name server") == 4)
        assert entries(name_server, RequestCode.UNREGISTER_BROKER) == []
        assert server.stop() == 0
        assert sorted(entries(name_server, RequestCode.UNREGISTER_BROKER)) == sorted(wanted)
    assert server.errors.read_text().count("registered with name server") == 4
