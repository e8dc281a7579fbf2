"""The guided tour behind `make demo`: serves the bundled sample store and says what to type next.

The store is g1 of `tests/golden`: some 390 messages that an Apache RocketMQ broker 5.5.0 wrote. It is unpacked once,
and only read after that; the server's own state lies beside it.
"""

import argparse
import os
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

from golden_store import unpack  # noqa: E402 - tests/ is no package; its path is known only now

OFFSET_ID = "7F00000100002A9F00000000000019B5"
UNIQUE_KEY = "FD000000000000000000000000000002708C30946E09687211CE0017"


def commands(rocketlens: str, store: str, address: str) -> list[tuple[str, list[str]]]:
    """What to try, each with the question it answers; all but the last need no RocketMQ."""
    return [
        ("a message by its offset id, no server asked", [rocketlens, "find", store, OFFSET_ID]),
        ("the same, asked of the server", [rocketlens, "find", address, OFFSET_ID]),
        (
            "the newest five messages with one key",
            [rocketlens, "find", store, "hotkey", "--topic", "TopicTest", "--limit", "5"],
        ),
        (
            "a unique key, as JSON",
            [rocketlens, "find", address, UNIQUE_KEY, "--json"],
        ),
        (
            "a key that is not there: the answer says what was searched",
            [rocketlens, "find", store, "nosuchkey", "-v"],
        ),
        (
            "RocketMQ's own mqadmin, where you have it",
            ["mqadmin", "queryMsgByKey", "-n", address, "-t", "TopicTest", "-k", "hotkey"],
        ),
    ]


def main() -> int:
    """Unpacks the store where it is missing, serves it until Ctrl-C, and returns the server's exit code."""
    parser = argparse.ArgumentParser(description="Serve the sample store and say what to type next.")
    parser.add_argument("--port", type=int, default=10911)
    parser.add_argument("--directory", type=Path, default=Path(".demo"))
    options = parser.parse_args()
    if is_taken(options.port):
        print(
            f"demo: port {options.port} of 127.0.0.1 is in use; choose another: make demo PORT=10921", file=sys.stderr
        )
        return 1
    store = options.directory / "g1"
    if not (store / "commitlog").is_dir():
        unpack("store", options.directory)
    return serve(store, options.directory / "state", f"127.0.0.1:{options.port}")


def is_taken(port: int) -> bool:
    """Whether somebody listens on the port of the loopback address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


def serve(store: Path, state: Path, address: str) -> int:
    """Runs the server, prints the tour once it accepts connections, and passes on what ends it."""
    rocketlens = os.path.relpath(Path(sys.executable).with_name("rocketlens"))
    command = [rocketlens, "serve", str(store), "--listen", address, "--state-dir", str(state)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        # Ctrl-C reaches the server too, which then ends by itself; a plain kill of this process must be passed on.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: server.terminate())
        assert server.stdout is not None
        for line in server.stdout:
            print(line, end="", flush=True)
            if line.startswith("rocketlens: serving"):
                print_tour(rocketlens, str(store), address)
        return server.wait()


def print_tour(rocketlens: str, store: str, address: str) -> None:
    """The commands, ready to be copied into a second terminal."""
    print("\nNow type, in another terminal in this folder:")
    for question, command in commands(rocketlens, store, address):
        print(f"\n  # {question}\n  {shlex.join(command)}")
    print("\nCtrl-C ends the server.", flush=True)


if __name__ == "__main__":
    sys.exit(main())
