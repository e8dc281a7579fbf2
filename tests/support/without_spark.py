"""Jobs whose tasks run one after the other in the test's own process: what is tried is what they do, not Spark."""

import contextlib
import pickle
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any

import pytest

MODULES = ("spark_jobs.build.exchange", "spark_jobs.convert.convert", "spark_jobs.scan.scan_log")
"""Those that start tasks."""


def run_here(_context: object, _name: str, tasks: Sequence[Any], function: Callable[[Any], Any]) -> list[Any]:
    """Run tasks; what goes to them is pickled, as it is in Spark."""
    return [function(pickle.loads(pickle.dumps(task))) for task in tasks]


@contextlib.contextmanager
def no_context(*_: object, **__: object) -> Iterator[None]:
    """In the place of a session."""
    yield None


def run_jobs_here(patch: pytest.MonkeyPatch) -> None:
    """Have the jobs of `spark_jobs.commands.run` start no Spark."""
    patch.setattr("spark_jobs.commands.run.spark_context", no_context)
    for name in MODULES:
        patch.setattr(import_module(name), "run_tasks", run_here)
