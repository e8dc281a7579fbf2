"""`rocketlens serve` and other commands, each as a process of its own."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from forked_command import Forked, fork_command, is_readable

ROOT = Path(__file__).parents[2]
ROCKETLENS = [sys.executable, "-c", "from rocketlens.cli.main import main; main()"]
START_SECONDS = 180
STOP_SECONDS = 60


@contextlib.contextmanager
def rocketlens_serving(store: Path, work: Path, *options: str, port: int = 0) -> Iterator[tuple[str, int]]:
    """The address of a server of ``store`` once it says that it serves, SIGTERM at the end; port 0 takes a free one."""
    command = ["serve", str(store), "--listen", f"127.0.0.1:{port}", "--state-dir", str(work / "state"), *options]
    with (work / "rocketlens.log").open("ab") as log:
        process = fork_command(*command, stderr=log)
    try:
        line = _first_line(process, work / "rocketlens.log")
        prefix = f"rocketlens: serving {store} on 127.0.0.1:"
        assert line.startswith(prefix), line
        yield "127.0.0.1", int(line.removeprefix(prefix))
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_SECONDS) == 0, (work / "rocketlens.log").read_text()[-4000:]
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stdout.close()


def run_rocketlens(*arguments: str) -> "subprocess.CompletedProcess[bytes]":
    """One command of ours, run to its end."""
    return subprocess.run([*ROCKETLENS, *arguments], capture_output=True, cwd=ROOT, check=False, timeout=120)


def _first_line(process: Forked, log: Path) -> str:
    deadline, line = time.monotonic() + START_SECONDS, b""
    while not line.endswith(b"\n"):
        if not is_readable(process.stdout, deadline - time.monotonic()):
            raise TimeoutError(f"rocketlens serve says nothing after {START_SECONDS} s\n{log.read_text()[-4000:]}")
        chunk = os.read(process.stdout.fileno(), 4096)
        if not chunk:
            raise RuntimeError(f"rocketlens serve ended with {process.wait()}\n{log.read_text()[-4000:]}")
        line += chunk
    return line.decode().strip()
