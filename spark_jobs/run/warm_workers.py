"""Python workers that are ready when they start: the daemon that forks them imports what tasks need, once.

`spark.python.daemon.module` names this module. Spark's own daemon imports nothing, so that each worker spends the first
second of its first task on NumPy and our modules. Spark also puts an archive of its Python sources first on the path,
and each start compiles anew what it imports of that: an installed pyspark, where that is done already, takes its place.
"""

import gc
import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

MODULE: Final = "ROCKETLENS_WARM_MODULE"
"""Environment variable: the module of the tasks to come."""

ARCHIVE: Final = "/python/lib/pyspark.zip"
"""Below the directory of a Spark, which is the package `pyspark` itself where that was installed by pip."""


def main() -> None:
    """Get ready, then do as Spark's daemon."""
    look_into_no_archives()
    from pyspark import daemon  # the driver, which only names this module, does without

    warm_up()
    as_spark: Any = daemon
    as_spark.worker = keep_imports(as_spark.worker)
    as_spark.manager()


def look_into_no_archives() -> None:
    """Import an installed pyspark from here on, and forget the archives that were looked into on the way here.

    At the first task of each worker pyspark has what is known of the path read again.
    """
    found = set(sys.path)
    sys.path[:] = without_archives(sys.path)
    archives = tuple(found.difference(sys.path))
    for place in [each for each in sys.path_importer_cache if each.startswith(archives)]:
        del sys.path_importer_cache[place]


def without_archives(path: list[str]) -> list[str]:
    """Leave out Spark's archives, of pyspark, py4j and classes, where the pyspark they are part of can be imported."""
    for name in path:
        installed = Path(name.removesuffix(ARCHIVE))
        if not name.endswith(ARCHIVE) or installed.name != "pyspark" or str(installed.parent) not in path:
            continue
        if (installed / "daemon.py").exists() and (installed.parent / "py4j").exists():
            return [each for each in path if not Path(each).is_relative_to(installed)]
    return path


def keep_imports(worker: Callable[..., int]) -> Callable[..., int]:
    """Have the collector of a worker, which Spark's daemon runs after each task, look away from what tasks import.

    With the client of an object store, looking takes longer than a small task.
    """

    def run(*arguments: Any) -> int:
        before = len(sys.modules)
        code = worker(*arguments)
        if len(sys.modules) > before:
            gc.collect()
            gc.freeze()
        return code

    return run


def warm_up() -> None:
    """Import what a worker would; nothing of it may start a thread, which a fork would lose."""
    importlib.import_module("pyspark.worker")
    if module := os.environ.get(MODULE):
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # so that no worker copies pages only to count


if __name__ == "__main__":
    main()
