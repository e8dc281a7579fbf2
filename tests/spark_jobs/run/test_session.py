"""How a session is set up: its addresses, and a JVM among whose arguments is no secret and that is gone in the end."""

import gc
import os
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from held_tasks import is_alive
from needed_tools import tool
from process import ROOT
from protocol.errors import ConfigError
from spark_classes import QUICK
from spark_jobs.run import _launch, session
from spark_jobs.run._launch import Launch
from spark_jobs.run._spark_calls import SparkFailed, spark_failure
from spark_jobs.run.session import _configuration


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A cache and a temporary directory of the test's own; what a configuration sets is put back."""
    for name in ("PYSPARK_PYTHON", "SPARK_LOCAL_IP", "SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    # The session of other tests, whose settings its JVM would tell.
    monkeypatch.setattr("pyspark.SparkContext._jvm", None)


HOSTILE = {
    "secret": "hidden-word-4711",
    "line": "a\nspark.injected.by.line=1\\\nspark.injected.too=1",
    "carriage return": "a\r\nspark.injected.again=1",
    "option": "a --conf spark.injected.option=1 --class Evil",
    "quotes": "\"'`$(touch injected)`; touch injected",
    "blanks": "  a  b\t ",
    "comment": "# a ! b",
    "equals": "a=b:c = d",
    "escape": "\\u0041 \\n \\",
    "unicode": "消息 \U0001f600 \xe9\x7f",
    "star": "* ~ ${HOME} %s",
}


def test_a_setting_is_nothing_but_the_value_of_its_name_and_no_argument_of_a_process(tmp_path: Path) -> None:
    settings = {f"spark.rocketlens.{number}": value for number, value in enumerate(HOSTILE.values())}
    settings["spark.driver.extraJavaOptions"] = " ".join(QUICK)
    tool("java")
    started = Launch()
    gateway = started.gateway(_configuration("", "local[1]", settings), tmp_path / "log")
    found = gateway.jvm.org.apache.spark.SparkConf()
    # Spark takes away blanks around what is in a file; the context is given them once more.
    assert {name: found.get(name) for name in settings} == {name: value.strip() for name, value in settings.items()}
    assert not [each for each in found.getAll() if "injected" in each._1()]
    assert HOSTILE["secret"].encode() not in Path(f"/proc/{gateway.proc.pid}/cmdline").read_bytes()
    started.end()
    assert not is_alive(gateway.proc.pid)
    assert list((tmp_path / "temporary").iterdir()) == []


@given(name=st.text(max_size=20), value=st.text(max_size=200))
def test_a_line_of_properties_is_read_as_it_was_written(name: str, value: str) -> None:
    """By the rules of java.util.Properties: nothing but letters, digits, dots, dashes and escaped units."""
    line = _launch._property_line((name, value))
    assert re.fullmatch(r"(?:[0-9A-Za-z._-]|\\u[0-9a-f]{4})*=(?:[0-9A-Za-z._-]|\\u[0-9a-f]{4})*\n", line)
    units = [re.sub(r"\\u([0-9a-f]{4})", lambda unit: chr(int(unit[1], 16)), text) for text in line[:-1].split("=", 1)]
    read = [text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass") for text in units]
    assert read == [name, value]


def test_a_jvm_that_does_not_start_is_told_by_its_last_words(tmp_path: Path) -> None:
    tool("java")
    log = tmp_path / "spark.log"
    started = Launch()
    with pytest.raises(Exception, match="JAVA_GATEWAY_EXITED") as ended:
        started.gateway(_configuration("", "local[1]", {"spark.driver.memory": "1 parsec"}), log)
    started.end()
    failure = spark_failure("Spark does not start", ended.value, log)
    assert isinstance(failure, SparkFailed)
    assert "parsec" in str(failure)
    assert "JAVA_GATEWAY_EXITED" not in str(failure)
    assert list((tmp_path / "temporary").iterdir()) == []
    del ended, failure
    gc.collect()  # an open pipe of what was left is a warning, and an error here


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
def test_a_machine_of_a_cluster_is_left_out_before_a_task_has_failed_for_good(failures, attempts) -> None:
    """Spark does not start where a task may fail as often on one machine as in all."""
    conf = _configuration("test", "spark://h:7077", {"spark.task.maxFailures": failures})
    assert conf.get("spark.excludeOnFailure.task.maxTaskAttemptsPerNode") == attempts
    assert conf.get("spark.excludeOnFailure.enabled") == (attempts and "true")


@pytest.mark.parametrize("seconds", ["soon", "0", "nan", "inf", "1e300"])
def test_a_start_takes_some_seconds_and_what_is_none_is_refused(seconds: str) -> None:
    assert session.start_seconds("spark://h:7077", {}) == session.START_SECONDS <= 25
    assert session.start_seconds("", {}) == session.start_seconds("local[2]", {}) == session.LOCAL_START_SECONDS
    assert session.start_seconds("yarn", {session.START_SETTING: "0.5"}) == 0.5
    with pytest.raises(ConfigError, match=f"{session.START_SETTING}={seconds}: expected a number of seconds"):
        session.start_seconds("", {session.START_SETTING: seconds})


def test_what_spark_said_before_it_failed_to_start_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    work = tmp_path / "work"
    work.mkdir()
    assert session._kept(work / "spark.log") == work / "spark.log"
    (work / "spark.log").write_text("no such master")
    kept = session._kept(work / "spark.log")
    assert (kept.parent, kept.read_text()) == (tmp_path, "no such master")


def test_what_another_thread_sets_in_the_environment_while_a_jvm_starts_stays(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep)  # which a child gets without the current directory
    for name, value in (("REMOVED", "1"), ("CHANGED", "1"), ("ADDED", "")):
        monkeypatch.setenv(name, value)
    del os.environ["ADDED"]
    before = dict(os.environ)
    with _launch._environment(tmp_path / "settings"):
        assert os.environ != before
        assert str(tmp_path / "settings") in os.environ["PYSPARK_SUBMIT_ARGS"]
        del os.environ["REMOVED"]
        os.environ.update(CHANGED="2", ADDED="3")
    del before["REMOVED"]
    assert dict(os.environ) == {**before, "CHANGED": "2", "ADDED": "3"}
