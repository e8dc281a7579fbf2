"""Workers know what tasks need before the first one comes."""

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from spark_jobs.run.session import run_tasks
from spark_jobs.run.warm_workers import MODULE

if TYPE_CHECKING:
    from pyspark import SparkContext


def test_a_worker_has_the_tasks_modules_before_its_first_task(spark: "SparkContext") -> None:
    def look(_: int) -> dict[str, Any]:
        import os
        import sys
        from pathlib import Path

        parent = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().decode().split("\0")
        return {"parent": parent, "warm": "spark_jobs.commands.run" in sys.modules}

    (found,) = run_tasks(spark, "look", [0], look)
    assert "spark_jobs.run.warm_workers" in found["parent"]
    assert found["warm"]


def test_workers_of_a_session_do_not_look_for_modules_where_they_are_started(spark: "SparkContext") -> None:
    def look(_: int) -> dict[str, Any]:
        import os
        import sys

        return {"safe": sys.flags.safe_path, "here": {"", ".", os.getcwd()} & set(sys.path[:1])}

    assert run_tasks(spark, "look", [0], look) == [{"safe": True, "here": set()}]


def test_only_what_was_asked_for_is_imported_and_no_thread_is_left_behind_by_it() -> None:
    code = (
        "import sys, threading; from spark_jobs.run.warm_workers import warm_up; warm_up(); "
        "print('pyspark.worker' in sys.modules, 'storage.amounts' in sys.modules, "
        "threading.active_count())"
    )
    for module, expected in (("", "True False 1"), ("storage.amounts", "True True 1")):
        environment = {**os.environ, MODULE: module, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == expected
