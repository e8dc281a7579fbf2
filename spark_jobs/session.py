"""The Spark session of a bulk job: embedded by default, or a cluster's.

Jobs are RDD jobs over small task descriptions; Spark decides where a task runs, and what it finds goes through files.
So everything here is about starting quickly, on the right interpreter and with the kernels' cache in place.
"""

import contextlib
import os
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from pyspark import SparkContext

Task = TypeVar("Task")

LOOPBACK: Final = "127.0.0.1"
PACKAGES: Final = ("protocol", "storage", "spark_jobs")
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
    from pyspark import SparkConf, SparkContext

    running = SparkContext._active_spark_context
    if running is not None:
        yield running
        return
    conf = SparkConf()
    master = master or conf.get("spark.master") or "local[*]"
    for key, value in {**_QUIET, **_where(master), **_python()}.items():
        conf.setIfMissing(key, value)
    for key, value in (settings or {}).items():
        conf.set(key, value)
    conf.setMaster(master).setAppName(f"rocketlens {name}")
    if is_local(master):
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    context = SparkContext(conf=conf)
    context.setLogLevel("ERROR")
    try:
        if not is_local(master):
            context.addPyFile(str(pack_sources(work / "rocketlens.zip")))
        yield context
    finally:
        with contextlib.suppress(Exception):
            context.cancelAllJobs()
        context.stop()


def is_local(master: str) -> bool:
    """Whether a master is this process."""
    return master == "local" or master.startswith("local[")


def run_tasks(
    context: "SparkContext", name: str, tasks: Sequence[Task], function: Callable[[Task], dict[str, Any]]
) -> list[dict[str, Any]]:
    """Run each task as a Spark task of its own; the summaries that they return, in order."""
    if not tasks:
        return []
    context.setJobDescription(name)
    return context.parallelize(tasks, len(tasks)).map(function).collect()


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
    """Addresses: a session of this machine alone has no business with the network, nor with host names."""
    if is_local(master):
        return {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    return {}


def _python() -> dict[str, str]:
    settings = {"spark.pyspark.python": sys.executable, "spark.pyspark.driver.python": sys.executable}
    cache = os.environ.get(NUMBA_CACHE)
    return {**settings, f"spark.executorEnv.{NUMBA_CACHE}": cache} if cache else settings
