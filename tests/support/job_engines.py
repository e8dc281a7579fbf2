"""Run jobs on the engine that the fixture `engine` has chosen: both, one after the other."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from spark_jobs.run.engine import Engine, EngineOptions, opened_engine
from spark_jobs.run.local_engine import LocalEngine
from spark_jobs.run.progress import JobProgress, Silence


@dataclass(frozen=True)
class JobEngine:
    """One of the two: processes that were started already, or the tests' session of Spark."""

    name: str
    local: LocalEngine | None = None

    def run(self, job: Callable[..., Any], request: Any, progress: JobProgress | None = None) -> Any:
        """Run a job, such as `run_rebuild`, on it."""
        return job(msgspec.structs.replace(request, engine=self.name), progress or Silence(), self.local)

    @contextlib.contextmanager
    def opened(self) -> Iterator[Engine]:
        """The engine itself."""
        with (
            tempfile.TemporaryDirectory() as work,
            opened_engine("test", EngineOptions(engine=self.name), Path(work), ahead=self.local) as engine,
        ):
            yield engine


CHOSEN: ContextVar[JobEngine | None] = ContextVar("CHOSEN", default=None)
"""The engine of the test that runs, if it asks for one, by the fixture `local` or `engine`."""


@contextlib.contextmanager
def chosen(engine: JobEngine) -> Iterator[JobEngine]:
    """Have `run_on_engine` run jobs on an engine."""
    before = CHOSEN.set(engine)
    yield engine
    CHOSEN.reset(before)


def run_on_engine(job: Callable[..., Any], request: Any) -> Any:
    """Run a job on the engine of the test that runs; where it does not ask for one, as users do."""
    return (CHOSEN.get() or JobEngine("auto")).run(job, request)
