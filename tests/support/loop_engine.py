"""An engine whose tasks run one after the other in the test's own process: what is tried is what they do."""

import contextlib
import errno
import os
import pickle
from types import SimpleNamespace

from protocol.errors import ConfigError, RocketLensError, is_out_of_room
from spark_jobs.run._spark_calls import TaskFailed, sentence_of


class LoopEngine:
    """Runs tasks as a loop, and as an engine does: what goes to them is pickled, and of errors comes back the text."""

    def __init__(self, *_modules: str, tasks_at_once: int = 2) -> None:
        self.tasks_at_once = tasks_at_once
        self.ran: list[str] = []

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing was started."""

    def run_tasks(self, name, tasks, function, /):
        self.ran.append(name)
        return [self.run(function, pickle.loads(pickle.dumps(task))) for task in tasks]

    def run(self, function, task):
        try:
            return function(task)
        except ConfigError:
            raise
        except (RocketLensError, OSError) as error:
            room = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) if is_out_of_room(error) else None
            raise TaskFailed(sentence_of(error)) from room

    @contextlib.contextmanager
    def share(self, value):
        yield SimpleNamespace(value=value)


def run_jobs_here(patch, engine=LoopEngine) -> None:
    patch.setattr("spark_jobs.run.local_engine.LocalEngine", engine)
