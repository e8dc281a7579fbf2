"""The JVM of a session: no secret is among its arguments, and it is gone when it is no longer wanted."""

import contextlib
import gc
import os
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blocking_client import eventually
from needed_tools import tool
from read_only import as_user, reachable_directory
from read_only_guard import NOBODY
from spark_jobs.run import _launch
from spark_jobs.run._launch import Launch
from spark_jobs.run._spark_calls import SparkFailed, call_apart, spark_failure
from spark_jobs.run.session import _configuration

WAIT_SECONDS = 180


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


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


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


def test_what_another_thread_sets_in_the_environment_while_a_jvm_starts_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_setting_is_nothing_but_the_value_of_its_name_and_no_argument_of_a_process(tmp_path: Path) -> None:
    settings = {f"spark.rocketlens.{number}": value for number, value in enumerate(HOSTILE.values())}
    tool("java")
    started = Launch()
    gateway = started.gateway(_configuration("", "local[1]", settings), tmp_path / "log")
    found = gateway.jvm.org.apache.spark.SparkConf()
    # Spark takes away blanks around what is in a file; the context is given them once more.
    assert {name: found.get(name) for name in settings} == {name: value.strip() for name, value in settings.items()}
    assert not [each for each in found.getAll() if "injected" in each._1()]
    assert HOSTILE["secret"].encode() not in Path(f"/proc/{gateway.proc.pid}/cmdline").read_bytes()
    started.end()
    assert not is_running(gateway.proc.pid)
    assert list((tmp_path / "temporary").iterdir()) == []


@given(name=st.text(max_size=20), value=st.text(max_size=200))
def test_a_line_of_properties_is_read_as_it_was_written(name: str, value: str) -> None:
    """By the rules of java.util.Properties: nothing but letters, digits, dots, dashes and escaped units."""
    line = _launch._property_line((name, value))
    assert re.fullmatch(r"(?:[0-9A-Za-z._-]|\\u[0-9a-f]{4})*=(?:[0-9A-Za-z._-]|\\u[0-9a-f]{4})*\n", line)
    units = [re.sub(r"\\u([0-9a-f]{4})", lambda unit: chr(int(unit[1], 16)), text) for text in line[:-1].split("=", 1)]
    read = [text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass") for text in units]
    assert read == [name, value]


def test_a_jvm_that_is_not_needed_after_all_is_ended_and_leaves_nothing(tmp_path: Path) -> None:
    tool("java")
    started = Launch()
    starting = call_apart(lambda: started.gateway(_configuration("", "local[1]", {}), tmp_path / "log"))
    eventually(lambda: bool(of_launch(started)), "Spark's script", WAIT_SECONDS)
    started.end()
    started.end()
    with pytest.raises(Exception, match="JAVA_GATEWAY_EXITED"):
        starting.result(WAIT_SECONDS)
    assert of_launch(started) == []
    assert list((tmp_path / "temporary").iterdir()) == []


def of_launch(launch: Launch) -> list[str]:
    """The processes that have the settings of a launch."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if bytes(launch._directory) in (process / "cmdline").read_bytes():
                found.append(process.name)
    return found


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


def status_of(pid: str, name: str) -> list[str]:
    """A line of a process's status, as words; nothing of one that has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return []
    return next(line.split()[1:] for line in lines if line.startswith(f"{name}:"))


def descendants() -> list[str]:
    """All processes that this one has started, and those that they have."""
    parents = {pid: status_of(pid, "PPid") for pid in os.listdir("/proc") if pid.isdecimal()}
    found = [str(os.getpid())]
    for each in found:
        found += [pid for pid, parent in parents.items() if parent == [each]]
    return found[1:]


@pytest.mark.skipif(os.getuid() != 0, reason="root alone has rights that can be taken back")
def test_no_child_of_a_job_that_runs_with_less_has_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's scripts are shells, which make the real user the effective one."""
    tool("java")
    seen: dict[str, tuple[list[str], list[str], list[str]]] = {}
    before = set(descendants())
    with reachable_directory() as directory:
        os.chown(directory, NOBODY, NOBODY)
        monkeypatch.setattr("tempfile.tempdir", str(directory))
        monkeypatch.setenv("HOME", str(directory))
        configuration = _configuration("", "local[1]", {})
        with as_user():
            started = Launch()
            starting = call_apart(lambda: started.gateway(configuration, directory / "log"))
            eventually(lambda: bool(of_launch(started) or starting.done()), "Spark's script", WAIT_SECONDS)
        deadline = time.monotonic() + WAIT_SECONDS
        while not any(names == ["java"] for names, _, _ in seen.values()):
            assert time.monotonic() < deadline, seen
            for pid in set(descendants()) - before:
                found = status_of(pid, "Name"), status_of(pid, "Uid"), status_of(pid, "Gid")
                # A child is as its parent is until it has begun with what it is to run.
                if all(found) and found[0] != status_of(str(os.getpid()), "Name"):
                    assert found[1:] == ([str(NOBODY)] * 4, [str(NOBODY)] * 4), found
                    assert status_of(pid, "Groups") == []
                    seen[pid] = found
        started.kill()
        with contextlib.suppress(Exception):  # until then the variables of this process are those of the JVM
            starting.result(WAIT_SECONDS)
    assert {"bash", "java"} & {name for names, _, _ in seen.values() for name in names}
