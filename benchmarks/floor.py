"""The floor under a pull: a C server (floor.c) that gathers the same records and does nothing else.

It stands on 127.0.0.1, believes its requests, and answers pulls of all messages of the benchmark's topic.
"""

import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.server_process import ServerProcess, free_port
from benchmarks.store_plan import TOPIC
from build_backend.compilers import find_compiler

FLOOR = "C server"
CHECKED_FLOOR = "C server with checks"
SOURCE = Path(__file__).with_name("floor.c")
CHECKSUMS = SOURCE.parent.parent / "storage" / "kernels"


def compile_floor(directory: Path) -> Path:
    """The program, in a directory; raises CalledProcessError where the compiler refuses it."""
    program = directory / "floor"
    compiler = shlex.split(find_compiler() or "cc")
    options = ["-O3", "-Wall", "-Wextra", "-Werror", "-I", str(CHECKSUMS), "-o", str(program)]
    subprocess.run([*compiler, *options, str(SOURCE)], check=True)
    return program


@contextmanager
def floor_server(program: Path, store: Path, *, is_checked: bool) -> Iterator[ServerProcess]:
    """The server on a store; with checks it looks at what RocketLens looks at of each record before it is sent."""
    port = free_port()
    command = [str(program), str(port), str(store), TOPIC, str(int(is_checked))]
    with ServerProcess(command, port, log=program.with_suffix(f".{port}.log")) as process:
        process.wait_until_open()
        yield process
