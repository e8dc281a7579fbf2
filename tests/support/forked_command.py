"""The `rocketlens` command as processes that need not import it: forks of one that has imported all that `serve` does.

The process that was loaded once forks twice for each command; the second fork becomes a child of the tests. A test of
what a process loads, or of how it begins, must start a new Python (`process.COMMAND`).
"""

import atexit
import ctypes
import functools
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
PR_SET_CHILD_SUBREAPER = 36
_one_at_a_time = threading.Lock()


class Forked:
    """A process that runs a command: what tests ask of a `subprocess.Popen`, with a pipe for what it prints."""

    def __init__(self, pid, stdout) -> None:
        self.pid, self.stdout = pid, stdout
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, None as long as it runs; as in `subprocess` that of a signal is negative."""
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code once it has ended; `subprocess.TimeoutExpired` if it has not in time."""
        if self.poll() is None:
            with open(os.pidfd_open(self.pid)) as ended:
                is_readable(ended, timeout)
        if self.poll() is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def is_readable(file, timeout):
    waiting = select.poll()
    waiting.register(file, select.POLLIN)
    return bool(waiting.poll(None if timeout is None else max(0.0, timeout) * 1000))


def fork_command(*arguments, stderr):
    """Run `rocketlens` with these arguments at the root of the repository; environment and limits are those of now."""
    limits = {number: resource.getrlimit(number) for number in (resource.RLIMIT_NOFILE, resource.RLIMIT_AS)}
    request = {"arguments": arguments, "environment": dict(os.environ), "limits": [*limits.items()]}
    output, printed = os.pipe()
    try:
        with _one_at_a_time:
            loaded = _loaded()
            _adopt_orphans(True)
            try:
                socket.send_fds(loaded, [json.dumps(request).encode()], [printed, stderr.fileno()])
                answer = loaded.recv(32)
                if not answer:
                    _loaded.cache_clear()
                    raise RuntimeError("the process that has the command loaded has ended: see what it printed")
                return Forked(int(answer), open(output))
            finally:
                _adopt_orphans(False)
    finally:
        os.close(printed)


def _adopt_orphans(is_on: bool) -> None:
    """Whether a process below this one whose parent ends becomes our child, instead of that of the first process."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, int(is_on), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


@functools.cache
def _loaded() -> socket.socket:
    """The connection to the process that has the command loaded, which lives as long as this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-m", "tests.support.forked_command", str(theirs.fileno())]
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "pass_fds": [theirs.fileno()]}
    process = subprocess.Popen(command, cwd=ROOT, **streams)
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _load() -> None:
    """Import what a server needs; nothing of it may start a thread, which a fork would lose."""
    from broker.app import load_lane
    from rocketlens.cli.serving import MODULES, WEB_MODULES

    modules = ("rocketlens.cli.serve", "broker.workers.loop_watch", "broker.workers.supervisor", "broker.workers.link")
    for name in (*modules, *MODULES, *WEB_MODULES):
        importlib.import_module(name)
    load_lane()
    gc.collect()
    gc.freeze()


def _answer(requests):
    while True:
        text, descriptors, *_ = socket.recv_fds(requests, 1 << 20, 2)
        if not text:
            return None
        reader, writer = os.pipe()
        first = os.fork()
        if not first:
            second = os.fork()
            if second:
                os.write(writer, str(second).encode())
                os._exit(0)
            for each in (reader, writer, requests.detach()):
                os.close(each)
            return json.loads(text) | {"descriptors": descriptors}
        # From its end on, the second is a child of the tests.
        os.waitpid(first, 0)
        requests.send(os.read(reader, 32))
        for each in (reader, writer, *descriptors):
            os.close(each)


def _become(request) -> None:
    for number, descriptor in enumerate(request["descriptors"], start=1):
        os.dup2(descriptor, number)
        os.close(descriptor)
    for number, limit in request["limits"]:
        resource.setrlimit(number, tuple(limit))
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["-c", *request["arguments"]]


if __name__ == "__main__":
    from rocketlens.cli.main import main

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests, and for commands that run
    _load()
    wanted = _answer(socket.socket(fileno=int(sys.argv[1])))
    if wanted is not None:
        _become(wanted)
        main(prog_name="rocketlens")
