"""Python workers that are ready when they start: the daemon that forks them imports what tasks need, once.

`spark.python.daemon.module` names this module. Spark's own daemon imports nothing, so that each worker spends the first
second of its first task on NumPy and our modules.
"""

import gc
import importlib
import os
from typing import Any, Final

MODULE: Final = "ROCKETLENS_WARM_MODULE"
"""Environment variable: the module of the tasks to come."""


def main() -> None:
    """Get ready, then do as Spark's daemon."""
    from pyspark import daemon  # the driver, which only names this module, does without

    warm_up()
    manager: Any = daemon.manager
    manager()


def warm_up() -> None:
    """Import what a worker would; nothing of it may start a thread, which a fork would lose."""
    importlib.import_module("pyspark.worker")
    if module := os.environ.get(MODULE):
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # so that no worker copies pages only to count


if __name__ == "__main__":
    main()
