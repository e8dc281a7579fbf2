"""How a session is set up; that it works is proved by all who use one."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from protocol.errors import ConfigError
from spark_jobs.run import session
from spark_jobs.run.session import _configuration, is_local, pack_packages

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is set here is put back: variables that a configuration leaves behind."""
    for name in ("PYSPARK_PYTHON", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    # The session of other tests, whose settings its JVM would tell.
    monkeypatch.setattr("pyspark.SparkContext._jvm", None)


@pytest.mark.parametrize(
    ("master", "local"),
    [("local", True), ("local[*]", True), ("local[2,4]", True), ("local-cluster[1,1,1024]", False), ("yarn", False)],
)
def test_a_master_is_local_or_not(master: str, local: bool) -> None:
    assert is_local(master) is local


def test_a_local_session_stays_on_the_loopback_address_and_a_clusters_has_its_own_addresses_and_paths() -> None:
    conf = _configuration("test", "local[2]", {"spark.ui.enabled": "true"})
    assert conf.get("spark.master") == "local[2]"
    assert conf.get("spark.app.name") == "rocketlens test"
    assert conf.get("spark.driver.host") == conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert conf.get("spark.executorEnv.PYTHONPATH") == str(ROOT)
    assert conf.get("spark.executorEnv.PYTHONSAFEPATH") == "1", "workers look for no modules in the current directory"
    assert conf.get("spark.ui.enabled") == "true"
    assert (os.environ["PYSPARK_PYTHON"], os.environ["SPARK_LOCAL_IP"]) == (sys.executable, "127.0.0.1")
    os.environ.pop("SPARK_LOCAL_IP")
    conf = _configuration("test", "spark://h:7077", {})
    assert [conf.get(f"spark.{name}") for name in ("driver.host", "executorEnv.PYTHONPATH")] == [None, None]
    assert conf.get("spark.executorEnv.PYTHONSAFEPATH") == "1"
    assert "SPARK_LOCAL_IP" not in os.environ


@pytest.mark.parametrize(("failures", "attempts"), [("4", "3"), ("3", "2"), ("2", "1"), ("1", None), ("many", None)])
def test_a_machine_of_a_cluster_is_left_out_before_a_task_has_failed_for_good(
    failures: str, attempts: str | None
) -> None:
    """Spark does not start where a task may fail as often on one machine as in all."""
    conf = _configuration("test", "spark://h:7077", {"spark.task.maxFailures": failures})
    assert conf.get("spark.excludeOnFailure.task.maxTaskAttemptsPerNode") == attempts
    assert conf.get("spark.excludeOnFailure.enabled") == (attempts and "true")


def test_workers_run_on_the_interpreter_that_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/python3.13")
    _configuration("test", "spark://h:7077", {})
    assert os.environ["PYSPARK_PYTHON"] == "/usr/bin/python3.13"
    _configuration("test", "spark://h:7077", {"spark.pyspark.python": "/opt/python"})
    assert os.environ["PYSPARK_PYTHON"] == "/opt/python"


@pytest.mark.parametrize("seconds", ["soon", "0", "nan", "inf", "1e300"])
def test_a_start_takes_some_seconds_and_what_is_none_is_refused(seconds: str) -> None:
    assert session.start_seconds("spark://h:7077", {}) == session.START_SECONDS <= 25
    assert session.start_seconds("", {}) == session.start_seconds("local[2]", {}) == session.LOCAL_START_SECONDS
    assert session.start_seconds("yarn", {session.START_SETTING: "0.5"}) == 0.5
    with pytest.raises(ConfigError, match=f"{session.START_SETTING}={seconds}: expected a number of seconds"):
        session.start_seconds("", {session.START_SETTING: seconds})


def test_what_is_sent_to_executors_can_be_imported_once_it_is_unpacked(tmp_path: Path) -> None:
    with zipfile.ZipFile(pack_packages(tmp_path / "packed.zip")) as archive:
        archive.extractall(tmp_path / "unpacked")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); "
        "import protocol.errors, storage.log.segment_list; from spark_jobs.run import session; "
        "from storage.kernels import records; print(session.__file__, records.__file__, sep='\\n')"
    )
    # Isolated (-I): nothing of this directory, of PYTHONPATH or of the home gets in.
    command = [sys.executable, "-I", "-c", code, str(tmp_path / "unpacked")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    found = [Path(line).relative_to(tmp_path / "unpacked") for line in done.stdout.splitlines()]
    assert found[0] == Path("spark_jobs/run/session.py")
    assert found[1].parent == Path("storage/kernels")
    assert set(session.PACKAGES) == {"rocketlens", "protocol", "storage", "spark_jobs"}


def test_what_spark_said_before_it_failed_to_start_outlives_the_work_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    work = tmp_path / "work"
    work.mkdir()
    assert session._kept(work / "spark.log") == work / "spark.log"
    (work / "spark.log").write_text("no such master")
    kept = session._kept(work / "spark.log")
    assert (kept.parent, kept.read_text()) == (tmp_path, "no such master")
