"""The processes that patterns run in: one for each that asks, none left behind, and none shared with a forked child."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest

from planted import imported, plant
from storage.child_process import child_environment, python_command
from storage.patterns import processes
from storage.patterns._pattern_process import (
    BRIEF_LEAST_SECONDS,
    LEAST_SECONDS,
    CheckAnswer,
    CheckQuestion,
    MaskAnswer,
    MaskQuestion,
)
from storage.patterns.processes import (
    AT_ONCE,
    BYTES_AT_ONCE,
    PatternLimit,
    PatternProcesses,
    PatternsUnavailable,
    in_groups,
)

ENDLESS = MaskQuestion(("/(a+)+b/",), [], [b"a" * 60])
QUESTION = MaskQuestion(("/a/",), [b"bab"], [])
ANSWER = MaskAnswer([b"b***b"], [])
DEADLINE_SECONDS = 60.0


def test_a_question_without_end_ends_the_child_that_answers_and_no_python_is_started_anew() -> None:
    asked = PatternProcesses()
    assert asked.ask(QUESTION, MaskAnswer) == ANSWER
    (process,) = asked._idle
    for _ in range(3):
        with pytest.raises(PatternLimit):
            asked.ask(ENDLESS, MaskAnswer)
        assert asked.ask(QUESTION, MaskAnswer) == ANSWER
        assert asked._idle == [process]
    asked.close()


def ticks_of_children(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[13]) + int(fields[14])


@pytest.mark.parametrize("is_brief", [pytest.param(False, marks=pytest.mark.soak), True])
def test_it_is_the_cpu_time_of_the_process_that_counts(is_brief: bool) -> None:
    """So that an answer is the same on a busy machine: time alone, while it stands still, ends nothing."""
    asked = PatternProcesses()
    asked.ask(QUESTION, MaskAnswer)
    (process,) = asked._idle
    group = process._process.pid
    before = ticks_of_children(group)
    stop = threading.Timer(0.02, os.killpg, (group, signal.SIGSTOP))
    go_on = threading.Timer(2 * LEAST_SECONDS, os.killpg, (group, signal.SIGCONT))
    stop.start(), go_on.start()
    with pytest.raises(PatternLimit):
        asked.ask(msgspec.structs.replace(ENDLESS, is_brief=is_brief), MaskAnswer)
    used = (ticks_of_children(group) - before) / os.sysconf("SC_CLK_TCK")
    least = BRIEF_LEAST_SECONDS if is_brief else LEAST_SECONDS
    assert least / 2 - 0.01 <= used <= least + 0.2, "ticks are coarse"
    stop.join(), go_on.join()
    asked.close()


def test_threads_ask_at_the_same_time() -> None:
    asked, answers = PatternProcesses(), []
    barrier = threading.Barrier(4)

    def ask() -> None:
        barrier.wait()
        answers.extend(asked.ask(QUESTION, MaskAnswer) for _ in range(5))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [ANSWER] * 20
    assert 1 <= len(asked._idle) <= processes.MOST_IDLE
    asked.close()


def test_one_that_does_not_start_is_an_error_and_hides_nothing_silently(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(PatternsUnavailable, match=r"does not start \(exit code 1\)"):
        PatternProcesses().ask(QUESTION, MaskAnswer)


def test_it_imports_nothing_from_where_somebody_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    asked = PatternProcesses()
    assert asked.ask(QUESTION, MaskAnswer) == ANSWER
    assert asked.ask(CheckQuestion("json_path", "$.a=1"), CheckAnswer) == CheckAnswer()
    asked.close()
    assert imported(tmp_path) == {}


def run(code: str) -> subprocess.CompletedProcess[str]:
    command = python_command(code)
    done = subprocess.run(
        command, env=child_environment(), capture_output=True, text=True, check=False, timeout=DEADLINE_SECONDS
    )
    assert not done.stderr
    return done


BEGIN = """
import os, signal
from storage.patterns.mask import mask_of
from storage.patterns.processes import PROCESSES
mask = mask_of(('/a/',))
assert mask.text('bab') == 'b***b'
pid = PROCESSES._idle[0]._process.pid

def children(pid):
    return open(f"/proc/{pid}/task/{pid}/children").read().split()
"""


def is_there(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    except OSError:
        return False


def test_who_is_killed_leaves_no_process_behind() -> None:
    code = f"{BEGIN}\nprint(pid, *children(pid), flush=True)\nos.kill(os.getpid(), signal.SIGKILL)"
    done = run(code)
    pids, deadline = list(map(int, done.stdout.split())), time.monotonic() + DEADLINE_SECONDS
    assert len(pids) == 2
    while any(is_there(pid) for pid in pids):
        assert time.monotonic() < deadline, "one is still there"
        time.sleep(0.01)


def test_a_forked_child_asks_a_process_of_its_own_and_keeps_no_other_alive() -> None:
    code = f"""{BEGIN}
child = os.fork()
if not child:
    assert not PROCESSES._idle
    assert mask.text('cac') == 'c***c' and PROCESSES._idle[0]._process.pid != pid
    os._exit(0)
assert mask.text('dad') == 'd***d' and PROCESSES._idle[0]._process.pid == pid
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run(code).stdout == "0\n"


def test_what_is_asked_together_is_bounded_in_number_and_bytes() -> None:
    sizes = [1] * 100 + [BYTES_AT_ONCE * 2, 1, BYTES_AT_ONCE - 1, 1]
    groups = list(in_groups(sizes, lambda size: size))
    assert [size for group in groups for size in group] == sizes
    assert all(len(group) <= AT_ONCE and (len(group) == 1 or sum(group) <= BYTES_AT_ONCE) for group in groups)
    assert len(groups) == 5
