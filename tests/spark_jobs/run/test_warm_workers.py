"""Workers know what tasks need before the first one comes."""

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

from spark_jobs.run.session import run_tasks
from spark_jobs.run.warm_workers import MODULE, without_archives

ROOT = Path(__file__).parents[3]
IMPORTING = """
import sys
from spark_jobs.run import warm_workers

for name in sys.argv[1:]:
    getattr(warm_workers, name)()
import pyspark.worker

own = sys.base_prefix  # its python311.zip, for example, which nobody has
archives = [path for path in sys.path_importer_cache if (".zip" in path or ".jar" in path) and not path.startswith(own)]
print(pyspark.worker.__file__, *archives)
"""
"""Imports what a worker does, after functions that are named; prints where it is, and the archives that were read."""

BEGINNING = """
import sys
from spark_jobs.run import warm_workers

def prepare():
    daemon = sys.modules["pyspark.daemon"]
    daemon.manager = lambda: print(daemon.__file__, daemon.worker.__qualname__)

warm_workers.warm_up = prepare
warm_workers.main()
"""
"""Does as the daemon up to its beginning; prints where Spark's daemon is, and the function of its workers."""

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


HOME = Path(pyspark.__file__).parent
ARCHIVES = [str(path) for path in (*(HOME / "python" / "lib").glob("*.zip"), *(HOME / "jars").glob("spark-core_*.jar"))]
"""What Spark puts in front of the path of its Pythons."""


def printed_behind_archives(code: str, *arguments: str) -> list[str]:
    """What a Python prints, word by word, that is started as Spark starts its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*ARCHIVES, str(ROOT)])}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()


def test_no_archive_is_looked_into_once_that_is_said() -> None:
    assert len(ARCHIVES) == 3
    assert printed_behind_archives(IMPORTING, "look_into_no_archives") == [str(HOME / "worker.py")]
    zipped, *looked_into = printed_behind_archives(IMPORTING)
    assert "pyspark.zip" in zipped
    assert set(ARCHIVES) <= set(looked_into)


def test_the_daemon_that_is_started_is_the_installed_one_and_keeps_what_its_workers_import() -> None:
    assert printed_behind_archives(BEGINNING) == [str(HOME / "daemon.py"), "keep_imports.<locals>.run"]


def test_an_archive_of_pyspark_stays_on_the_path_unless_what_it_is_part_of_can_be_imported(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    archives = [str(packages / "pyspark" / "python" / "lib" / name) for name in ("pyspark.zip", "py4j-0.10-src.zip")]
    elsewhere = ["/spark/python/lib/pyspark.zip", "/spark/python/lib/py4j-0.10-src.zip"]
    archives.append(str(packages / "pyspark" / "jars" / "spark-core.jar"))
    path = [*archives, "/ours", *elsewhere, str(packages)]
    (packages / "pyspark").mkdir(parents=True)
    (packages / "pyspark" / "daemon.py").touch()
    assert without_archives(path) == path, "py4j is in its archive only"
    (packages / "py4j").mkdir()
    assert without_archives(path) == ["/ours", *elsewhere, str(packages)]
    assert without_archives(path[:-1]) == path[:-1], "this Python does not look there"


def test_workers_of_a_session_do_not_look_for_modules_where_they_are_started(spark: "SparkContext") -> None:
    def look(_: int) -> dict[str, Any]:
        import os
        import sys

        here = {"", ".", os.getcwd()}
        given = [path for path in os.environ["PYTHONPATH"].split(os.pathsep) if path in here]
        return {"safe": sys.flags.safe_path, "more": len([path for path in sys.path if path in here]) - len(set(given))}

    assert run_tasks(spark, "look", [0], look) == [{"safe": True, "more": 0}]


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


@pytest.mark.parametrize(("task", "expected"), [("import wave", True), ("wave = [[]]", False)])
def test_the_collector_looks_away_from_what_a_task_has_imported(task: str, *, expected: bool) -> None:
    """And from nothing else, which may be garbage by then."""
    code = (
        "import gc; from spark_jobs.run.warm_workers import keep_imports; gc.freeze(); before = gc.get_freeze_count(); "
        f"code = keep_imports(lambda task: exec(task) or 7)({task!r}); print(code, gc.get_freeze_count() > before)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"7 {expected}"
