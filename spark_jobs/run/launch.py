"""Start the JVM of an embedded session, or of a cluster's driver: early, quickly, and gone when we are.

It is started while we still import our kernels, so that both take the time of one. pyspark starts it only when a
context is made and then waits, and lets it compile what it never comes to use; but the words between the two, a file
with port and secret, are pyspark's own.
"""

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.run.class_archive import class_archive
from storage.child_process import child_environment, child_ids

if TYPE_CHECKING:  # pyspark takes long to import: it is when a session starts
    from pyspark import SparkConf

STOP_SECONDS: Final = 60
"""How long a JVM may take to end; one that leaves its classes to the next takes seconds."""

_LOOK_AGAIN_SECONDS: Final = 0.01
_LAST_WORDS_SECONDS: Final = 5
_PORT: Final = "PYSPARK_GATEWAY_PORT"
_SECRET: Final = "PYSPARK_GATEWAY_SECRET"
_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
_TUNED: Final = ("spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions")

_QUICK: Final = ("-XX:+IgnoreUnrecognizedVMOptions", "-XX:TieredStopAtLevel=1")
"""It hands out tasks for some seconds: code that is compiled at once is worth more than code that is compiled well."""


class Launch:
    """A JVM that is starting; `connect` waits for it, `end` ends it."""

    def __init__(self, conf: "SparkConf") -> None:
        """Start it with the settings that are known so far; those of the context win."""
        from pyspark.find_spark_home import _find_spark_home

        self.began = time.monotonic()
        find_home: Any = _find_spark_home
        self._home = Path(find_home())
        self._archive = class_archive(self._home)
        self._directory = Path(tempfile.mkdtemp(prefix="rocketlens-spark-"))
        self._connection = self._directory / "connection"
        self._words = SparkWords()
        self._gateway: Any = None
        self.has_ended = False
        # A file of ours: what is in the arguments of a process, every user of the machine can read.
        settings = self._directory / "settings"
        settings.write_text("".join(map(_property_line, conf.getAll())), "ascii")
        command = [
            str(self._home / "bin" / "spark-submit"),
            "--properties-file",
            str(settings),
            "--load-spark-defaults",
        ]
        ids = child_ids()
        try:
            self._process = subprocess.Popen(
                [*command, *shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))],
                stdin=subprocess.PIPE,  # at its end the JVM ends, even where we were killed
                stdout=self._words.written,
                stderr=self._words.written,
                env=self._environment(conf),
                process_group=0,  # a terminal's Ctrl-C is for us
                user=ids.user,
                group=ids.group,
            )
        except OSError:
            shutil.rmtree(self._directory, ignore_errors=True)
            raise
        finally:
            self._words.start()

    def _environment(self, conf: "SparkConf") -> dict[str, str]:
        """Our environment, with settings that make Spark's scripts quick unless the user tunes the JVM."""
        environment = {
            **child_environment(),
            "SPARK_HOME": str(self._home),
            "SPARK_CONNECT_MODE": "0",
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._connection),
        }
        environment.setdefault("SPARK_LAUNCHER_OPTS", _QUICK[-1])
        if _OPTIONS not in environment and not any(conf.contains(name) for name in _TUNED):
            environment[_OPTIONS] = " ".join(map(_quoted, [*_QUICK, *self._archive.options()]))
        return environment

    def connect(self, log: Path) -> Any:
        """Wait for the JVM; pyspark's gateway to it. What it and its workers say goes to `log`.

        Raises PySparkRuntimeError, of the class JAVA_GATEWAY_EXITED, where it ends instead.
        """
        from pyspark.errors import PySparkRuntimeError
        from pyspark.java_gateway import launch_gateway

        self._words.go_to(log)
        while not self._connection.exists():
            if self._process.poll() is not None:
                self._words.join(_LAST_WORDS_SECONDS)
                raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
            time.sleep(_LOOK_AGAIN_SECONDS)
        data = self._connection.read_bytes()
        length = int.from_bytes(data[4:8], "big")
        gateway = {_PORT: str(int.from_bytes(data[:4], "big")), _SECRET: data[8 : 8 + length].decode()}
        shutil.rmtree(self._directory, ignore_errors=True)
        launch: Any = launch_gateway
        os.environ.update(gateway)
        try:
            self._gateway = launch()
        finally:
            for name in gateway:
                del os.environ[name]
        return self._gateway

    def end(self) -> None:
        """End it, whatever it is doing, and with it all workers: nobody writes from here on. Twice is once."""
        if self.has_ended:
            return
        self.has_ended = True
        assert self._process.stdin is not None
        if self._gateway is not None:
            with contextlib.suppress(Exception):  # it may be gone already
                self._gateway.shutdown()
        else:
            self._process.terminate()
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            code = self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)
        self._archive.keep(ended_well=code == 0)

    def kill(self) -> None:
        """End it where it has not started in time: it does not listen, and has no workers yet."""
        if self.has_ended:
            return
        self.has_ended = True
        assert self._process.stdin is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # Spark's scripts, where these still look for a Java
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)
        self._archive.keep(ended_well=False)


class SparkWords(threading.Thread):
    """Spark's output, kept until there is a log to write to: the work directory is made after the JVM is started."""

    def __init__(self) -> None:
        """Open the pipe: what is written to the descriptor `written` is kept."""
        super().__init__(name="what Spark says", daemon=True)
        self._said, self.written = os.pipe()
        self._early = bytearray()
        self._log: int | None = None
        self._over = False
        self._lock = threading.Lock()

    def start(self) -> None:
        """Listen; processes that are to be heard have been started."""
        os.close(self.written)
        super().start()

    def run(self) -> None:
        """Write down everything until all that could speak have ended."""
        while data := os.read(self._said, 1 << 16):
            with self._lock:
                self._write(data)
        os.close(self._said)
        with self._lock:
            self._over = True
            self._close()

    def go_to(self, log: Path) -> None:
        """Append what was said so far, and will be, to a file."""
        with self._lock:
            self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            self._write(bytes(self._early))
            if self._over:
                self._close()

    def _write(self, data: bytes) -> None:
        if self._log is None:
            self._early += data
        else:
            with contextlib.suppress(OSError):  # a full disk is reported elsewhere
                os.write(self._log, data)

    def _close(self) -> None:
        if self._log is not None:
            os.close(self._log)
        self._log = None


def _property_line(setting: tuple[str, str]) -> str:
    """A setting as a line of Java's properties, in which every character that could mean something is spelled out."""
    return "=".join(re.sub(r"[^0-9A-Za-z._-]", _spelled_out, text) for text in setting) + "\n"


def _spelled_out(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _quoted(option: str) -> str:
    """An option as Spark's launcher splits them: at blanks, but not within quotes."""
    return f'"{option}"' if " " in option else option
