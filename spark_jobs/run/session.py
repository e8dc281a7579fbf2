"""The Spark session of a bulk job: embedded by default, or a cluster's.

Jobs are RDD jobs over small task descriptions; Spark decides where a task runs, and what it finds goes through files.
So everything here is about starting on the right interpreter and with our packages at hand, and about ending.
"""

import atexit
import contextlib
import logging
import os
import shutil
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import spark_jobs
from protocol.errors import ConfigError
from spark_jobs.run._executors import Executors, watched_executors
from spark_jobs.run._launch import Launch
from spark_jobs.run._private_pyspark import forget_gateway, running_context, running_gateway
from spark_jobs.run._spark_calls import (
    Guarded,
    SparkFailed,
    call_apart,
    cause_of,
    in_group,
    run_job,
    spark_failure,
    wait_for,
)
from spark_jobs.run.arrival import DIRECTORY
from spark_jobs.run.engine_names import SUBMITTED
from storage.child_process import SAFE_PATH

if TYPE_CHECKING:  # pyspark takes long to import: it is when a session starts
    from pyspark import Broadcast, SparkConf, SparkContext

Task = TypeVar("Task")
Result = TypeVar("Result")
Value = TypeVar("Value")

LOOPBACK: Final = "127.0.0.1"
PACKAGES: Final = ("rocketlens", "protocol", "storage", "spark_jobs")
SPARK_LOG: Final = "spark.log"
"""What an embedded Spark and its workers say, in the work directory."""

LOCAL: Final = "local[*]"
"""The master where none is named."""

START_SECONDS: Final = 25
"""How long a cluster's session may take to start: a command whose master cannot be reached ends within 30 seconds."""

LOCAL_START_SECONDS: Final = 120
"""Seconds to wait where no other machine has to be reached: only a slow or busy machine takes as long."""

LAST_CALL_SECONDS: Final = 2
"""How long a call into a JVM that was killed may take to fail."""

START_SETTING: Final = "spark.rocketlens.startSeconds"
"""The property that says otherwise: for machines that are very slow, and clusters that have a driver wait its turn."""

FEW_TASKS: Final = 64
"""Up to this number, tasks are sent one by one, which takes less time than a broadcast of them all."""

_CONNECTED: Final = ("spark.rocketlens.connected", "true")
"""Any property: to set one connects this process with the JVM of spark-submit, whose options are seen from then on."""

PYTHON: Final = "PYSPARK_PYTHON"
_QUIET: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # A task's input is a description of some hundred bytes, its output a summary.
    "spark.rpc.message.maxSize": "512",
    "spark.task.maxFailures": "4",
    "spark.python.worker.reuse": "true",
    "spark.shuffle.service.enabled": "false",
    # Rows of the shuffle have megabytes, and Java's serializer keeps what it has written until it is reset.
    "spark.serializer.objectStreamReset": "1",
    # They are kept on the disks of executors, and nearly all of a row is hashes and offsets, of which LZ4 saves little.
    "spark.rdd.compress": "false",
}
_CLUSTER_FAILURES: Final = {
    # A task that has failed twice on one executor, whose disk may be full, is tried on another one, and an executor on
    # which two tasks have failed gets no more of them. Where there is no other, the job ends with the task's own error.
    "spark.excludeOnFailure.enabled": "true",
    "spark.excludeOnFailure.task.maxTaskAttemptsPerExecutor": "2",
    "spark.scheduler.excludeOnFailure.unschedulableTaskSetTimeout": "15s",
}
"""What holds for machines of a cluster, which fail one by one."""

_NODE_ATTEMPTS: Final = "spark.excludeOnFailure.task.maxTaskAttemptsPerNode"
"""Three, and fewer than `spark.task.maxFailures`, since Spark does not start otherwise."""

_SAFE: Final = {f"spark.executorEnv.{SAFE_PATH}": "1"}
"""Spark starts its workers by `python -m`, which looks for modules in the current directory first."""


@contextlib.contextmanager
def spark_context(
    name: str,
    master: str,
    work: Path,
    settings: dict[str, str] | None = None,
    *,
    notify: Callable[[str], None] | None = None,
) -> Iterator["SparkContext"]:
    """A context for one job; `settings` are Spark's own and win. A context that runs already is used and left running.

    Without `master` it is the one that spark-submit was given, or `local[*]`. `local[...]` stays on the loopback
    address. Executors of a cluster get our packages as an archive, and need what those import on their image.
    `notify` gets the lines for the person who waits while a cluster has no executor for the job yet.
    """
    running = running_context()
    if running is not None:
        send_packages(running)
        with in_group(name):
            yield running
        return
    seconds = start_seconds(master, settings or {})
    # None where somebody has started a JVM already: spark-submit, or who had a session before us.
    launch = Launch() if SUBMITTED not in os.environ and running_gateway() is None else None
    started = call_apart(lambda: _start(name, master, work, settings or {}, launch))
    try:
        if not wait_for(started, seconds):
            _abandon(started, launch)
            raise _no_answer(master, seconds, work / SPARK_LOG)
        context = started.result()
        with in_group(name), _watched(context, notify, work / SPARK_LOG if launch is not None else None):
            yield context
    finally:
        with contextlib.suppress(Exception):
            call_apart(lambda: _stop(launch)).result()


def _watched(
    context: "SparkContext", notify: Callable[[str], None] | None, log: Path | None
) -> contextlib.AbstractContextManager[None]:
    """Notify the person who waits for a cluster's executors; the embedded session is its own executor."""
    if notify is None or is_local(context.master or ""):
        return contextlib.nullcontext()
    return watched_executors(Executors(context, log), notify)


def start_seconds(master: str, settings: dict[str, str]) -> float:
    """How long a session may take to start; raises ConfigError for a setting that is no number of seconds."""
    is_here = is_local(master or _submitted("spark.master") or LOCAL)
    usual = str(LOCAL_START_SECONDS if is_here else START_SECONDS)
    text = settings.get(START_SETTING) or _submitted(START_SETTING) or usual
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < threading.TIMEOUT_MAX:
        raise ConfigError(f"--conf {START_SETTING}={text}: expected a number of seconds")
    return seconds


def _submitted(name: str) -> str | None:
    """A property that spark-submit was given, None where it did not start this process."""
    if SUBMITTED not in os.environ:
        return None
    from pyspark import SparkConf, SparkContext

    SparkContext.setSystemProperty(*_CONNECTED)
    return SparkConf().get(name)


def _abandon(started: "Future[SparkContext]", launch: Launch | None) -> None:
    """End the JVM of a session that has not started in time, and with it the call into it.

    Spark itself would try to reach a cluster's master for a minute, and for ever to reach one that takes the
    connection and says nothing; other cluster managers have limits of their own, or none.
    """
    if launch is None:
        return
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)  # py4j would show where in its code a connection was lost
    try:
        launch.kill()
        wait_for(started, LAST_CALL_SECONDS)
    finally:
        logging.disable(before)


def _no_answer(master: str, seconds: float, log: Path) -> SparkFailed:
    master = master or _submitted("spark.master") or LOCAL
    who = "Spark" if is_local(master) else f"the master {master}"
    kept = _kept(log)
    return SparkFailed(
        f"Spark does not start: {who} did not answer within {seconds:g} s; --conf {START_SETTING}=SECONDS waits longer"
        + (f"; more in {kept}" if kept.exists() else "")
    )


def _start(name: str, master: str, work: Path, settings: dict[str, str], launch: Launch | None) -> "SparkContext":
    from pyspark import SparkContext

    context = None
    try:
        conf = _configuration(name, master, settings)
        gateway = launch.gateway(conf, work / SPARK_LOG) if launch is not None else running_gateway()
        context = SparkContext(conf=conf, gateway=gateway)
        context.setLogLevel("ERROR")
        send_packages(context)
    except Exception as error:
        if launch is not None and launch.has_ended:  # who ended it says why
            raise
        raise spark_failure("Spark does not start", cause_of(error, context), _kept(work / SPARK_LOG)) from error
    return context


def _kept(log: Path) -> Path:
    """A copy of a log, which stays when a work directory goes in which nothing was done; else the log itself."""
    try:
        said = log.read_bytes()
        with tempfile.NamedTemporaryFile(prefix="rocketlens-spark-", suffix=".log", delete=False) as copy:
            copy.write(said)
    except OSError:
        return log
    return Path(copy.name)


def _stop(launch: Launch | None) -> None:
    """End the context and the JVM that was started for it, and with that all workers: nobody writes from here on."""
    context = running_context()
    try:
        if context is not None:
            context.stop()
    finally:
        if launch is not None:
            forget_gateway()
            launch.end()


def _configuration(name: str, master: str, settings: dict[str, str]) -> "SparkConf":
    from pyspark import SparkConf, SparkContext

    if SUBMITTED in os.environ:
        SparkContext.setSystemProperty(*_CONNECTED)  # else the options of spark-submit are not seen
    conf = SparkConf()
    master = master or conf.get("spark.master") or LOCAL
    for key, value in {**_QUIET, **_SAFE, **_where(master)}.items():
        conf.setIfMissing(key, value)
    for key, value in settings.items():
        conf.set(key, value)
    for key, value in _cluster_failures(master, conf.get("spark.task.maxFailures", "")).items():
        conf.setIfMissing(key, value)
    # pyspark reads these two from the environment only, and takes any python3 of the PATH for its workers otherwise.
    os.environ[PYTHON] = settings.get("spark.pyspark.python") or os.environ.get(PYTHON) or sys.executable
    if is_local(master):
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    return conf.setMaster(master).setAppName(f"rocketlens {name}".rstrip())


def is_local(master: str) -> bool:
    """Whether a master is this process."""
    return master == "local" or master.startswith("local[")


def is_of_cluster(master: str) -> bool:
    """Whether a session with this master has its tasks run on other machines."""
    return not is_local(master or _submitted("spark.master") or LOCAL)


class SparkEngine:
    """Spark, which has a running context."""

    def __init__(self, context: "SparkContext") -> None:
        """Nothing is run yet."""
        self.context = context

    @property
    def tasks_at_once(self) -> int:
        """How many cores there are."""
        return self.context.defaultParallelism

    def run_tasks(self, name: str, tasks: Sequence[Task], function: Callable[[Task], Result], /) -> list[Result]:
        """Run each task as a Spark task of its own: :func:`run_tasks`."""
        return run_tasks(self.context, name, tasks, function)

    @contextlib.contextmanager
    def share(self, value: Value) -> Iterator["Broadcast[Value]"]:
        """Let tasks have a value: each executor gets it once."""
        sent = self.context.broadcast(value)
        try:
            yield sent
        finally:
            sent.destroy()


def run_tasks(
    context: "SparkContext", name: str, tasks: Sequence[Task], function: Callable[[Task], Result]
) -> list[Result]:
    """Run each task as a Spark task of its own; the summaries that they return, in order.

    Many tasks are sent to each executor at once, and what they share but once: the list of all segments, for example,
    which may be a part of thousands. A RocketLensError or OSError of a task ends the job and is raised here, as
    TaskFailed. The Spark UI shows the job as `COMMAND: NAME`, in the group of the command.
    """
    if not tasks:
        return []

    def collect() -> list[Result]:
        if len(tasks) <= FEW_TASKS:
            return context.runJob(context.parallelize(tasks, len(tasks)).map(Guarded(function)), list)
        sent = context.broadcast(list(tasks))
        run = Guarded(partial(_run_numbered, sent, function))
        try:
            return context.runJob(context.parallelize(range(len(tasks)), len(tasks)).map(run), list)
        finally:
            sent.destroy()

    return run_job(context, name, collect)


def _run_numbered(sent: "Broadcast[list[Task]]", function: Callable[[Task], Result], number: int) -> Result:
    """Run one of the tasks that were broadcast; they are unpacked here, where our packages have arrived."""
    return function(sent.value[number])


def send_packages(context: "SparkContext") -> None:
    """Have the executors of a cluster find our packages, compiled modules included, if that is not done yet."""
    if is_local(context.master or "") or any(path.endswith(f"#{DIRECTORY}") for path in context.listArchives):
        return
    directory = tempfile.mkdtemp(prefix="rocketlens-")  # executors that start later have it sent, too
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    archive = pack_packages(Path(directory) / "rocketlens-packages.zip")
    context.addArchive(f"{archive}#{DIRECTORY}")


def send_packages_by_connect(spark: Any) -> None:
    """Have the executors find our packages where the session is one of Spark Connect, for which alone they are sent."""
    with tempfile.TemporaryDirectory() as directory:
        archive = pack_packages(Path(directory) / "rocketlens-packages.zip")
        spark.addArtifacts(f"{archive}#{DIRECTORY}", archive=True)


def pack_packages(path: Path) -> Path:
    """Pack our packages, from where they are imported, as a zip file for Spark to unpack."""
    root = Path(spark_jobs.__file__).parents[1]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in PACKAGES:
            for source in sorted((root / package).rglob("*")):
                if source.name.endswith((".py", ".typed", *EXTENSION_SUFFIXES)):
                    archive.write(source, source.relative_to(root))
    return path


def _cluster_failures(master: str, failures: str) -> dict[str, str]:
    """Settings by which a machine of a cluster that fails is left out; a task may fail `failures` times in all."""
    if is_local(master) or not failures.isascii() or not failures.isdigit() or int(failures) < 2:
        return {}
    return {**_CLUSTER_FAILURES, _NODE_ATTEMPTS: str(min(3, int(failures) - 1))}


def _where(master: str) -> dict[str, str]:
    """Settings by where tasks run: a session of this machine alone has no business with the network, nor with names.

    Its workers import our packages from where this process does, wherever it was started.
    """
    if not is_local(master):
        return {}
    sources = str(Path(spark_jobs.__file__).parents[1])
    return {
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.executorEnv.PYTHONPATH": sources,
    }
