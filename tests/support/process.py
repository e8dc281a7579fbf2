"""The `rocketlens` command as processes: run to its end, or serving until the test stops it."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from broker.endpoint import Endpoint
from forked_command import Forked, fork_command

ROOT = Path(__file__).parents[2]
OPTIONS: tuple[str, ...] = ()

ROCKETLENS = (sys.executable, "-c", "from rocketlens.cli.main import main; main(prog_name='rocketlens')")
COMMAND = ROCKETLENS
"""A test may set another, which a new Python then runs; servers by the usual one are forked (`forked_command`)."""

START_SECONDS = 180
STOP_SECONDS = 60.0
LINE = re.compile(r"rocketlens: serving (.+ on [^ ,;]+(?:, [^ ,;]+)*)(?:; HTTP at ([^ ;]+))?(?:; gRPC at [^ ]+)?\n")


def rocketlens(*arguments: str | Path, env: dict[str, str] | None = None) -> "subprocess.CompletedProcess[bytes]":
    """Run one command to its end: as a fork, unless a test has set another command or asks for another environment."""
    if env is None and COMMAND == ROCKETLENS:
        return _forked(*map(str, arguments))
    command = [*COMMAND, *map(str, arguments)]
    environment = os.environ | (env or {})
    return subprocess.run(command, capture_output=True, cwd=ROOT, env=environment, check=False, timeout=START_SECONDS)


def _forked(*arguments: str) -> "subprocess.CompletedProcess[bytes]":
    with tempfile.TemporaryFile() as errors:
        process = fork_command(*arguments, stderr=errors)
        in_time = threading.Timer(START_SECONDS, process.kill)
        in_time.start()
        try:
            with process.stdout:
                output = process.stdout.buffer.read()
            code = process.wait(START_SECONDS)
        finally:
            in_time.cancel()
            in_time.join()
        errors.seek(0)
        return subprocess.CompletedProcess(arguments, code, output, errors.read())


@dataclass
class Serving:
    """A server process that accepts connections; `line` is what it said on stdout, `errors` the file of its stderr."""

    process: "subprocess.Popen[str] | Forked"
    line: str
    errors: Path

    @property
    def places(self) -> list[tuple[str, list[Endpoint]]]:
        found = LINE.fullmatch(self.line)
        assert found, self.line
        parts = [part.rpartition(" on ") for part in found[1].split("; ")]
        return [(store, [Endpoint.parse(text) for text in addresses.split(", ")]) for store, _, addresses in parts]

    @property
    def endpoints(self) -> list[Endpoint]:
        return self.places[0][1]

    @property
    def http_port(self) -> int:
        found = LINE.fullmatch(self.line)
        assert found, self.line
        return Endpoint.parse(found[2]).port

    @property
    def workers(self) -> list[int]:
        """The processes that serve, watched by the one that was started; one that died is missing for a moment."""
        pid = self.process.pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(STOP_SECONDS)


@contextlib.contextmanager
def serving_process(store, folder, *arguments, tree=ROOT):
    """Serve a store on a free loopback port (unless `arguments` say otherwise) until the block ends."""
    listen = [] if "--listen" in arguments else ["--listen", "127.0.0.1:0"]
    command = ["serve", str(store), *listen, *OPTIONS, *arguments]
    errors = folder / "stderr"
    process: subprocess.Popen[str] | Forked
    with errors.open("w") as file:
        if tree == ROOT and COMMAND == ROCKETLENS:
            process = fork_command(*command, stderr=file)
        else:
            process = subprocess.Popen([*COMMAND, *command], stdout=subprocess.PIPE, stderr=file, cwd=tree, text=True)
    assert process.stdout is not None
    killer = threading.Timer(START_SECONDS, process.kill)
    killer.start()
    try:
        line = process.stdout.readline()
        killer.cancel()
        assert line, errors.read_text()
        yield Serving(process, line, errors)
    finally:
        killer.cancel()
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()


@contextlib.contextmanager
def rocketlens_serving(store, work, *options, port=0):
    """The address of a server of a store, with its state in ``work``, which must end well; port 0 takes a free one."""
    arguments = ("--listen", f"127.0.0.1:{port}", "--state-dir", str(work / "state"), *options)
    with serving_process(store, work, *arguments) as serving:
        (endpoint,) = serving.endpoints
        yield endpoint.host, endpoint.port
        assert serving.stop() == 0, serving.errors.read_text()[-4000:]


def owner_of(server_port: int, port: int) -> int:
    """The process that has a server's end of a connection from a port; 0 while none has taken it."""
    ends = f"sport = :{server_port} and dport = :{port}"
    shown = subprocess.run(["ss", "-tnpH", ends], capture_output=True, text=True, check=True).stdout
    return int(shown.partition("pid=")[2].partition(",")[0] or 0)
