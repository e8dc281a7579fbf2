"""What runs the tasks of a job: one interface, two engines. The tasks are the same, and so is what they write.

LocalEngine    processes of this machine (:mod:`spark_jobs.run.local_engine`)
SparkEngine    Spark, on a cluster or embedded (:mod:`spark_jobs.run.session`)

Everything else lies above: attempts, records, commits, the work directory, places behind URLs.
"""

import contextlib
import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from protocol.errors import ConfigError
from spark_jobs.run.engine_names import AUTO, SUBMITTED, uses_spark
from storage.extras import install_line

if TYPE_CHECKING:  # what a command does not run on is not loaded
    from spark_jobs.run.local_engine import LocalEngine
    from spark_jobs.run.session import SparkEngine

Task = TypeVar("Task")
Result = TypeVar("Result")
Value = TypeVar("Value")
Value_co = TypeVar("Value_co", covariant=True)


class Shared(Protocol[Value_co]):
    """A value that many tasks need; each of their processes gets it once."""

    @property
    def value(self) -> Value_co:
        """The value, wherever this is asked for."""


class Engine(Protocol):
    """Runs tasks, each by a function that other processes can import."""

    @property
    def tasks_at_once(self) -> int:
        """How many tasks run side by side, about."""

    def run_tasks(self, name: str, tasks: Sequence[Task], function: Callable[[Task], Result], /) -> list[Result]:
        """Run tasks under a name; their answers, in order. Raises TaskFailed for an error that a task expects."""

    def share(self, value: Value) -> AbstractContextManager[Shared[Value]]:
        """Let tasks have a value, in what is pickled for them, until the block ends."""


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a command says of its engine: a name, and of Spark the URL of its master ("": local[*]) and properties."""

    engine: str = AUTO
    master: str = ""
    settings: dict[str, str] = {}

    @property
    def shuffles(self) -> bool:
        """Whether the job asks for Spark's own shuffle."""
        return False

    @property
    def is_on_spark(self) -> bool:
        """Whether the job runs on Spark; raises ConfigError for options that contradict each other."""
        return uses_spark(self.engine, self.master, self.settings, shuffles=self.shuffles)

    @property
    def is_named(self) -> bool:
        """Whether an engine is named, or an option of one; raises ConfigError as `is_on_spark` does."""
        return self.engine != AUTO or self.is_on_spark

    @property
    def works_elsewhere(self) -> bool:
        """Whether tasks run on other machines: on those of a cluster, which reach files by their names."""
        if not self.is_on_spark:
            return False
        from spark_jobs.run.session import is_of_cluster

        return is_of_cluster(self.master)


@contextlib.contextmanager
def opened_engine(
    name: str,
    options: EngineOptions,
    work: Path,
    *,
    ahead: "LocalEngine | None" = None,
    tasks: str = "",
    notify: Callable[[str], None] | None = None,
) -> Iterator["LocalEngine | SparkEngine"]:
    """The engine for one job that is called `name`; `ahead` is the one that was started already, if one was.

    A job opens it once the places that it writes to have been found to take that: what is refused must not wait for a
    JVM. `tasks` is the module of the tasks, which workers of this machine import once. Spark writes its log into
    `work`, and `notify` gets the lines for the person who waits until it is there, and has executors.
    """
    if options.is_on_spark:
        from spark_jobs.run.session import SparkEngine, spark_context

        check_spark()
        if notify is not None and SUBMITTED not in os.environ:
            notify(f"starting Spark ({options.master or 'local[*]'}), a few seconds")
        with spark_context(name, options.master, work, options.settings, notify=notify) as context:
            yield SparkEngine(context)
    elif ahead is not None:
        yield ahead
    else:
        from spark_jobs.run.local_engine import LocalEngine

        with LocalEngine(tasks) as engine:
            yield engine


def check_spark() -> None:
    """Raise ConfigError where Spark or Java is missing."""
    if importlib.util.find_spec("pyspark") is None:
        raise ConfigError(f"this needs Spark: {install_line('spark')}")
    if find_java() is None:
        home = os.environ.get("JAVA_HOME")
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "there is none in PATH"
        raise ConfigError(f"Spark needs Java 17 or later, and {where}: install a JDK or set JAVA_HOME")


def find_java() -> Path | None:
    """The java that Spark's scripts run, or None."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=os.path.join(home, "bin")) if home else shutil.which("java")
    return Path(found).resolve() if found else None
