"""Start the JVM of an embedded session, or of a cluster's driver, and have it gone when we are.

pyspark starts it; but pyspark would write all settings, secrets too, among the arguments of a process, which every user
of the machine can read, and would let it run in our process group, where a terminal's Ctrl-C ends it before us.
"""

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.run._private_pyspark import start_gateway
from storage.child_process import child_environment, child_ids

if TYPE_CHECKING:  # pyspark takes long to import: it is when a session starts
    from pyspark import SparkConf

STOP_SECONDS: Final = 60
"""How long a JVM may take to end."""

SUBMIT_ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"
"""What pyspark adds to the command line of Spark's script, for all that users say there."""


class Launch:
    """A JVM of ours; `end` ends it, or `kill` where it does not listen."""

    def __init__(self) -> None:
        """Make the directory for its settings, by whose name its processes are known; nothing is started."""
        self._directory = Path(tempfile.mkdtemp(prefix="rocketlens-spark-"))
        self._gateway: Any = None
        self.has_ended = False

    def gateway(self, conf: "SparkConf", log: Path) -> Any:
        """Start it with settings, and wait for it; pyspark's gateway to it. What it and its workers say goes to `log`.

        Raises OSError, and PySparkRuntimeError of the class JAVA_GATEWAY_EXITED where it ends at once.
        """
        settings = self._directory / "settings"
        settings.write_text("".join(map(_property_line, conf.getAll())), "ascii")
        ids = child_ids()
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        with os.fdopen(descriptor, "ab") as said, _environment(settings):
            how = {"stdout": said, "stderr": said, "process_group": 0, "user": ids.user, "group": ids.group}
            self._gateway = start_gateway(how)
        return self._gateway

    def end(self) -> None:
        """End it, and with it all workers: nobody writes from here on. Twice is once."""
        if self._gateway is None:
            self.kill()
        if self.has_ended:
            return
        self.has_ended = True
        process: subprocess.Popen[bytes] = self._gateway.proc
        with contextlib.suppress(Exception):  # it may be gone already
            self._gateway.shutdown()
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._kill_all()
            process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def kill(self) -> None:
        """End it where it has not started in time, whatever it is doing."""
        if self.has_ended:
            return
        self.has_ended = True
        self._kill_all()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _kill_all(self) -> None:
        """Kill the groups of all processes that have our settings: Spark's scripts, before these are the JVM."""
        name = bytes(self._directory)
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if name in (process / "cmdline").read_bytes():
                    os.killpg(os.getpgid(int(process.name)), signal.SIGKILL)


@contextlib.contextmanager
def _environment(settings: Path) -> Iterator[None]:
    """Have pyspark start Spark's script with the settings of a file, and no child look into the current directory.

    pyspark lets the script have our environment, and takes no other for it.
    """
    before = dict(os.environ)
    arguments = ["--properties-file", str(settings), "--load-spark-defaults"]
    said = before.get(SUBMIT_ARGUMENTS, "pyspark-shell")
    wanted = {**child_environment(), SUBMIT_ARGUMENTS: f"{shlex.join(arguments)} {said}"}
    changed = [name for name in before.keys() | wanted.keys() if before.get(name) != wanted.get(name)]
    try:
        _set(changed, wanted)
        yield
    finally:  # what another thread set meanwhile stays
        _set([name for name in changed if os.environ.get(name) == wanted.get(name)], before)


def _set(names: Iterable[str], values: Mapping[str, str]) -> None:
    for name in names:
        if name in values:
            os.environ[name] = values[name]
        else:
            os.environ.pop(name, None)


def _property_line(setting: tuple[str, str]) -> str:
    """Write a setting as a line of a Java properties file, with special characters escaped."""
    return "=".join(re.sub(r"[^0-9A-Za-z._-]", _spelled_out, text) for text in setting) + "\n"


def _spelled_out(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
