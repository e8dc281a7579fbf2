"""Processes of this machine that do tasks: what they answer, and that none is left, whatever happens to them."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import engine_tasks
from blocking_client import eventually
from engine_tasks import die, die_or_stay, double, facts_of_process, fail, first_fails, leave
from held_tasks import is_alive
from process import ROOT
from protocol.errors import ConfigError
from spark_jobs.run import local_engine
from spark_jobs.run._spark_calls import TaskFailed
from spark_jobs.run.local_engine import LocalEngine, WorkerLost, cores

END_SECONDS = 60
SUPPORT = ROOT / "tests" / "support"


@pytest.fixture(scope="module", autouse=True)
def tasks_are_found():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(map(str, (SUPPORT, SUPPORT.parent, ROOT))))
        yield


@pytest.fixture(scope="module")
def engine():
    """One for all tests, since it has to go on after whatever has happened to its processes."""
    with LocalEngine(processes=2) as engine:
        yield engine
    assert children_of(os.getpid(), engine._forker.pid) == []


def children_of(parent: int, child: int) -> list[str]:
    try:
        status = Path(f"/proc/{child}/status").read_text()
    except OSError:
        return []
    return [status] if f"PPid:\t{parent}\n" in status and "State:\tZ" not in status else []


def test_refused_options_a_full_disk_and_a_bug_are_known_for_what_they_are(engine: LocalEngine) -> None:
    with pytest.raises(ConfigError, match=r"^--partition-by topic: no$"):
        engine.run_tasks("fail", [ConfigError("--partition-by topic: no")], fail)

    with pytest.raises(TaskFailed, match=r"^/out/part: No space left on device$") as failed:
        engine.run_tasks("fail", [OSError(errno.ENOSPC, "No space left on device", "/out/part")], fail)
    assert isinstance(failed.value.__cause__, OSError)
    assert failed.value.__cause__.errno == errno.ENOSPC

    with pytest.raises(RuntimeError, match=r"(?s)a task of fail failed:.*in fail.*ZeroDivisionError: a bug"):
        engine.run_tasks("fail", [ZeroDivisionError("a bug")], fail)


def test_a_task_that_fails_has_the_others_break_off_and_tidy_up(engine: LocalEngine, tmp_path: Path) -> None:
    tasks = [(number, str(tmp_path)) for number in range(10)]
    with pytest.raises(TaskFailed, match="is not what it was"):
        engine.run_tasks("wait", tasks, first_fails)
    assert [path.name for path in tmp_path.iterdir()] == ["tidied-1"]
    assert engine.run_tasks("double", range(9), double) == [2 * number for number in range(9)]


@pytest.mark.parametrize(
    ("function", "how", "said"),
    [
        (die, signal.SIGBUS, "ended by SIGBUS in the middle of scan, task 1 of 1: a file became shorter"),
        (die, signal.SIGKILL, "ended by SIGKILL in the middle of scan, task 1 of 1: the machine has too little memory"),
        (leave, 3, "a process ended with exit code 3 in the middle of scan, task 1 of 1: run it again"),
    ],
)
def test_a_lost_process_is_named_in_a_sentence_and_another_takes_its_place(engine, function, how, said) -> None:
    with pytest.raises(WorkerLost) as lost:
        engine.run_tasks("scan", [how], function)
    assert said in str(lost.value)
    assert "\n" not in str(lost.value)
    assert engine.run_tasks("double", range(9), double) == [2 * number for number in range(9)]


def test_where_all_processes_are_killed_the_next_tasks_get_new_ones(engine: LocalEngine) -> None:
    processes = set(engine.run_tasks("which", range(30), engine_tasks.number_of_process))
    os.kill(engine._forker.pid, signal.SIGKILL)
    for process in processes:
        eventually(lambda process=process: not is_alive(process), "their ends", END_SECONDS)
    with pytest.raises(WorkerLost, match="a process ended with the process that started it in the middle of double"):
        engine.run_tasks("double", range(9), double)
    assert engine.run_tasks("double", range(9), double) == [2 * number for number in range(9)]


def test_a_task_that_does_not_stop_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_engine, "STOP_SECONDS", 0.1)
    with LocalEngine(processes=2) as engine:
        with pytest.raises(WorkerLost):
            engine.run_tasks("mixed", [("die", str(tmp_path)), ("stay", str(tmp_path))], die_or_stay)
        (stayed,) = (int(path.name) for path in tmp_path.iterdir())
        assert not is_alive(stayed)


def test_processes_look_for_no_modules_where_we_are_and_have_no_more_rights_than_we_use(engine: LocalEngine) -> None:
    (facts,) = engine.run_tasks("facts", [0], facts_of_process)
    users, groups = facts["ids"]
    assert set(users) == {str(os.geteuid())}
    assert set(groups) == {str(os.getegid())}
    assert "" not in facts["path"]
    assert facts["safe"]
    assert facts["stdin"] == "/dev/null"
    assert facts["group"] != os.getpgrp()
    assert not any(b"secret" in each for each in facts["arguments"])


def test_it_is_one_process_a_core_and_no_more_than_a_container_has(tmp_path, monkeypatch) -> None:
    limit, usable = tmp_path / "cpu.max", len(os.sched_getaffinity(0))
    monkeypatch.setattr(local_engine, "CPU_LIMIT", limit)
    usual = ((None, usable), ("max 100000\n", usable), ("150000 100000\n", min(2, usable)), ("garbage", usable))
    for text, count in (*usual, ("50000 100000\n", 1), ("100000 100000\n", 1)):
        limit.unlink(missing_ok=True) if text is None else limit.write_text(text)
        assert cores() == count, text


DRIVER = """
import sys
from engine_tasks import run_for_ever
from spark_jobs.run.local_engine import LocalEngine
with LocalEngine(processes=2) as engine:
    engine.run_tasks("for ever", [sys.argv[1]] * 2, run_for_ever)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.soak)])
def test_no_process_outlives_its_driver(tmp_path: Path, how: int) -> None:
    """Ctrl-C comes to the driver alone, and a driver that is killed says nothing to anybody."""
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path)], cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: len(os.listdir(tmp_path)) == 2, "its tasks", END_SECONDS)
        driver.send_signal(how)
        driver.wait(END_SECONDS)
        for name in os.listdir(tmp_path):
            eventually(lambda name=name: not is_alive(int(name)), "the end of its tasks", END_SECONDS)
    finally:
        driver.kill()
        driver.wait()
