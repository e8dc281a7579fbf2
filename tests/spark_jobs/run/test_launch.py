"""The JVM of a session: started ahead, quick from the second time on, and gone when it is no longer wanted."""

import os
import re
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from read_only import reachable_directory
from read_only_guard import NOBODY
from rights import as_user
from spark_jobs.run import launch
from spark_jobs.run.launch import Launch, SparkWords
from spark_jobs.run.session import _configuration
from spark_jobs.run.spark_calls import SparkFailed, spark_failure

WAIT_SECONDS = 180


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A cache and a temporary directory of the test's own; what a configuration sets is put back."""
    for name in ("PYSPARK_PYTHON", "SPARK_LOCAL_IP", "SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))  # an option with a blank is one option
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    # The session of other tests, whose settings its JVM would tell.
    monkeypatch.setattr("pyspark.SparkContext._jvm", None)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_the_second_jvm_takes_sparks_classes_from_what_the_first_one_left_below_a_name_with_a_blank(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = Launch(_configuration("", "local[1]", {}))
    assert first.connect(tmp_path / "first.log").jvm.java.lang.Math.abs(-7) == 7
    assert list((tmp_path / "temporary").iterdir()) == []
    first.end()
    assert not is_running(first._process.pid)
    (archive,) = (tmp_path / "a cache" / "rocketlens").iterdir()

    monkeypatch.setenv("JDK_JAVA_OPTIONS", f"-Xlog:class+load:file={tmp_path}/classes-%p")
    second = Launch(_configuration("", "local[1]", {}))
    second.connect(tmp_path / "second.log")
    loaded = (tmp_path / f"classes-{second._process.pid}").read_text().splitlines()
    second.end()
    (source,) = (line for line in loaded if " org.apache.spark.SparkConf source:" in line)
    assert source.endswith("shared objects file (top)")
    assert [archive] == list((tmp_path / "a cache" / "rocketlens").iterdir())


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
    started = Launch(_configuration("", "local[1]", settings))
    found = started.connect(tmp_path / "log").jvm.org.apache.spark.SparkConf()
    # Spark takes away blanks around what is in a file; the context is given them once more.
    assert {name: found.get(name) for name in settings} == {name: value.strip() for name, value in settings.items()}
    assert not [each for each in found.getAll() if "injected" in each._1()]
    assert HOSTILE["secret"].encode() not in Path(f"/proc/{started._process.pid}/cmdline").read_bytes()
    started.end()


@given(name=st.text(max_size=20), value=st.text(max_size=200))
def test_a_line_of_properties_is_read_as_it_was_written(name: str, value: str) -> None:
    """By the rules of java.util.Properties: nothing but letters, digits, dots, dashes and escaped units."""
    line = launch._property_line((name, value))
    assert re.fullmatch(r"(?:[0-9A-Za-z._-]|\\u[0-9a-f]{4})*=(?:[0-9A-Za-z._-]|\\u[0-9a-f]{4})*\n", line)
    units = [re.sub(r"\\u([0-9a-f]{4})", lambda unit: chr(int(unit[1], 16)), text) for text in line[:-1].split("=", 1)]
    read = [text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass") for text in units]
    assert read == [name, value]


def test_a_jvm_that_is_not_needed_after_all_is_ended_and_leaves_nothing(tmp_path: Path) -> None:
    started = Launch(_configuration("", "local[1]", {}))
    started.end()
    started.end()
    assert not is_running(started._process.pid)
    assert list((tmp_path / "temporary").iterdir()) == []
    assert list((tmp_path / "a cache" / "rocketlens").iterdir()) == []


def test_a_jvm_that_does_not_start_is_told_by_its_last_words(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    started = Launch(_configuration("", "local[1]", {"spark.driver.memory": "1 parsec"}))
    with pytest.raises(Exception, match="JAVA_GATEWAY_EXITED") as ended:
        started.connect(log)
    started.end()
    failure = spark_failure("Spark does not start", ended.value, log)
    assert isinstance(failure, SparkFailed)
    assert "parsec" in str(failure)
    assert "JAVA_GATEWAY_EXITED" not in str(failure)
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "variables"),
    [
        ({"spark.driver.extraJavaOptions": "-Xshare:off"}, {}),
        ({"spark.driver.defaultJavaOptions": "-Xshare:off"}, {}),
        ({}, {"SPARK_SUBMIT_OPTS": "-Xshare:off"}),
    ],
)
def test_who_tunes_the_jvm_tunes_it_alone(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], variables: dict[str, str]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    told: list[dict[str, str]] = []

    def refuse(_command: list[str], *, env: dict[str, str], **_: object) -> None:
        told.append(env)
        raise FileNotFoundError("no such script")

    monkeypatch.setattr(launch.subprocess, "Popen", refuse)
    with pytest.raises(FileNotFoundError):
        Launch(_configuration("", "local[1]", settings))
    with pytest.raises(FileNotFoundError):
        Launch(_configuration("", "local[1]", {}))
    assert told[0].get("SPARK_SUBMIT_OPTS") == variables.get("SPARK_SUBMIT_OPTS")
    assert ("-XX:TieredStopAtLevel=1" in told[1]["SPARK_SUBMIT_OPTS"]) is not bool(variables)


def test_what_spark_says_before_there_is_a_log_is_in_the_log(tmp_path: Path) -> None:
    words, log = SparkWords(), tmp_path / "spark.log"
    command = ["sh", "-c", "echo early; read -r _; echo late; echo last >&2"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=words.written, stderr=words.written, text=True
    ) as process:
        words.start()
        deadline = time.monotonic() + WAIT_SECONDS
        while not words._early and time.monotonic() < deadline:
            time.sleep(0.01)
        words.go_to(log)
        assert log.read_text() == "early\n"
        process.communicate("go on\n")
    words.join(WAIT_SECONDS)
    assert log.read_text() == "early\nlate\nlast\n"


def test_a_log_may_come_after_the_last_word(tmp_path: Path) -> None:
    words = SparkWords()
    subprocess.run(["echo", "all"], stdout=words.written, check=True)
    words.start()
    words.join(WAIT_SECONDS)
    words.go_to(tmp_path / "spark.log")
    assert (tmp_path / "spark.log").read_text() == "all\n"


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
    seen: dict[str, tuple[list[str], list[str], list[str]]] = {}
    before = set(descendants())
    with reachable_directory() as directory:
        os.chown(directory, NOBODY, NOBODY)
        monkeypatch.setattr("tempfile.tempdir", str(directory))
        monkeypatch.setenv("XDG_CACHE_HOME", str(directory))
        monkeypatch.setenv("HOME", str(directory))
        configuration = _configuration("", "local[1]", {})
        with as_user():
            started = Launch(configuration)
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
    assert {"bash", "java"} & {name for names, _, _ in seen.values() for name in names}
