"""The Spark session of a bulk job: embedded by default, or a cluster's.

Jobs are RDD jobs over small task descriptions; Spark decides where a task runs, and what it finds goes through files.
So everything here is about starting quickly, on the right interpreter and with the kernels' cache in place.
"""

import contextlib
import os
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import spark_jobs
from spark_jobs.spark_calls import Guarded, call_apart, run_job, spark_failure

if TYPE_CHECKING:
    from pyspark import SparkConf, SparkContext

Task = TypeVar("Task")

LOOPBACK: Final = "127.0.0.1"
PACKAGES: Final = ("protocol", "storage", "spark_jobs")
SPARK_LOG: Final = "spark.log"
"""What an embedded Spark and its workers say, in the work directory."""

STOP_SECONDS: Final = 20
SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""Set where spark-submit started this process and has the JVM already."""

PYTHON: Final = "PYSPARK_PYTHON"
NUMBA_CACHE: Final = "NUMBA_CACHE_DIR"
_QUIET: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # A task's input is a description of some hundred bytes, its output a summary.
    "spark.rpc.message.maxSize": "512",
    "spark.task.maxFailures": "4",
    "spark.python.worker.reuse": "true",
    "spark.shuffle.service.enabled": "false",
}


@contextlib.contextmanager
def spark_context(
    name: str, master: str, work: Path, settings: dict[str, str] | None = None
) -> Iterator["SparkContext"]:
    """A context for one job; `settings` are Spark's own and win. A context that runs already is used and left running.

    Without `master` it is the one that spark-submit was told, or `local[*]`. `local[...]` stays on the loopback
    address. Executors of a cluster get our packages as a zip and need NumPy, numba and msgpack on their image.
    """
    from pyspark import SparkContext

    running = SparkContext._active_spark_context
    if running is not None:
        yield running
        return
    try:
        yield call_apart(lambda: _start(name, master, work, settings or {})).result()
    finally:
        with contextlib.suppress(Exception):
            call_apart(_stop).result()


def _start(name: str, master: str, work: Path, settings: dict[str, str]) -> "SparkContext":
    from pyspark import SparkContext

    try:
        conf = _configuration(name, master, settings)
        gateway = SparkContext._gateway or _launch(conf, work / SPARK_LOG)
        context = SparkContext(conf=conf, gateway=gateway)
    except Exception as error:
        raise spark_failure("Spark does not start", error, work / SPARK_LOG) from error
    context.setLogLevel("ERROR")
    is_shipped = ".zip" in __file__  # spark-submit brought it, to the executors too
    if not (is_local(conf.get("spark.master") or "") or is_shipped):
        context.addPyFile(str(pack_sources(work / "rocketlens-sources.zip")))
    return context


def _stop() -> None:
    """End the context and the JVM that was started for it, and with that all workers: nobody writes from here on."""
    from pyspark import SparkContext

    if SparkContext._active_spark_context is not None:
        SparkContext._active_spark_context.stop()
    gateway: Any = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if process is None:
        return
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    process.stdin.close()
    process.wait(STOP_SECONDS)


def _configuration(name: str, master: str, settings: dict[str, str]) -> "SparkConf":
    from pyspark import SparkConf, SparkContext

    if SUBMITTED in os.environ:
        SparkContext._ensure_initialized()  # else what spark-submit was told is not seen
    conf = SparkConf()
    master = master or conf.get("spark.master") or "local[*]"
    for key, value in {**_QUIET, **_where(master), **_kernels()}.items():
        conf.setIfMissing(key, value)
    for key, value in settings.items():
        conf.set(key, value)
    # pyspark reads these two from the environment only, and takes any python3 of the PATH for its workers otherwise.
    os.environ[PYTHON] = settings.get("spark.pyspark.python") or os.environ.get(PYTHON) or sys.executable
    if is_local(master):
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    return conf.setMaster(master).setAppName(f"rocketlens {name}")


def _launch(conf: "SparkConf", log: Path) -> Any:
    """Start the JVM, unless spark-submit has; what it says goes into a file: this command's output is for answers."""
    from pyspark.java_gateway import launch_gateway

    launch: Callable[..., Any] = launch_gateway
    with open(log, "ab") as said, warnings.catch_warnings():
        # Python 3.12 warns of forks beside threads; the child of this one starts Spark's script at once.
        warnings.simplefilter("ignore", DeprecationWarning)
        return launch(conf, {"stdout": said, "stderr": said})


def is_local(master: str) -> bool:
    """Whether a master is this process."""
    return master == "local" or master.startswith("local[")


def run_tasks(
    context: "SparkContext", name: str, tasks: Sequence[Task], function: Callable[[Task], dict[str, Any]]
) -> list[dict[str, Any]]:
    """Run each task as a Spark task of its own; the summaries that they return, in order.

    A RocketLensError or OSError of a task ends the job and is raised here, as TaskFailed.
    """
    if not tasks:
        return []

    def collect() -> list[dict[str, Any]]:
        context.setJobDescription(name)
        return context.parallelize(tasks, len(tasks)).map(Guarded(function)).collect()

    return run_job(context, collect)


def pack_sources(path: Path) -> Path:
    """Pack our packages, from wherever they are imported, as a zip that a Python of the same version can import."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in PACKAGES:
            for source, name in _sources(files(package), package):
                archive.writestr(name, source.read_bytes())
    return path


def _sources(directory: Traversable, name: str) -> Iterator[tuple[Traversable, str]]:
    for entry in sorted(directory.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir() and entry.name != "__pycache__":
            yield from _sources(entry, f"{name}/{entry.name}")
        elif entry.name.endswith((".py", ".typed")):
            yield entry, f"{name}/{entry.name}"


def _where(master: str) -> dict[str, str]:
    """Addresses: a session of this machine alone has no business with the network, nor with host names.

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


def _kernels() -> dict[str, str]:
    cache = os.environ.get(NUMBA_CACHE)
    return {f"spark.executorEnv.{NUMBA_CACHE}": cache} if cache else {}
