"""A command that is forked from a loaded process is, to the test that starts it, a process like any other."""

import ctypes
import os
import resource
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from forked_command import Forked, fork_command

PR_GET_CHILD_SUBREAPER = 37


def ended(tmp_path: Path, *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command."""
    errors = tmp_path / "errors"
    with errors.open("w") as file:
        process = fork_command(*arguments, stderr=file)
    with process.stdout:
        printed = process.stdout.read()
    return process.wait(60), printed, errors.read_text()


def serving(store: Path, tmp_path: Path) -> Forked:
    arguments = ("serve", str(store), "--listen", "127.0.0.1:0", "--state-dir", str(tmp_path / "state"))
    with (tmp_path / "errors").open("w") as file:
        return fork_command(*arguments, stderr=file)


FIRST = ("FD000000000000000000000000000002708C30946E09687211CE0017", "--topic", "TopicTest", "--as", "unique-key")


def test_it_prints_and_ends_as_the_command_does(tmp_path: Path, g1_store: Path) -> None:
    code, printed, errors = ended(tmp_path, "find", str(g1_store), *FIRST, "--json")
    assert (code, errors) == (0, "")
    assert '"physicalOffset":6581,' in printed
    code, printed, errors = ended(tmp_path, "find", "--nonsense")
    assert (code, printed) == (2, "")
    assert errors.startswith("Usage: rocketlens find")


def test_it_has_the_environment_of_its_own_time(
    tmp_path: Path, g1_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ended(tmp_path, "topics", str(g1_store))[0] == 0
    monkeypatch.setenv("ROCKETLENS_TOPICS_JSON", "neither")
    code, _, errors = ended(tmp_path, "topics", str(g1_store))
    assert code == 2
    assert "'neither' is not a valid boolean" in errors


def test_it_has_the_limits_of_its_own_time(tmp_path: Path, g1_store: Path) -> None:
    ended(tmp_path, "topics", str(g1_store))
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 40, hard))
    try:
        process = serving(g1_store, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    with process.stdout:
        process.stdout.readline()
        assert resource.prlimit(process.pid, resource.RLIMIT_AS)[0] == 1 << 40
    process.kill()
    process.wait(60)


def test_it_can_be_waited_for_and_stopped(tmp_path: Path, g1_store: Path) -> None:
    process = serving(g1_store, tmp_path)
    with process.stdout:
        assert process.stdout.readline().startswith("rocketlens: serving ")
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0)
        process.terminate()
        assert process.wait(60) == process.poll() == 0


def test_a_signal_that_ends_it_is_its_exit_code(tmp_path: Path, g1_store: Path) -> None:
    process = serving(g1_store, tmp_path)
    with process.stdout:
        process.stdout.readline()
    process.kill()
    assert process.wait(60) == -9
    process.kill()


def test_it_is_a_child_of_the_tests_and_nobody_elses_orphans_are(tmp_path: Path, g1_store: Path) -> None:
    process = serving(g1_store, tmp_path)
    with process.stdout:
        process.stdout.readline()
        assert Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[1] == str(os.getpid())
        adopts = ctypes.c_int(1)
        assert ctypes.CDLL(None).prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(adopts), 0, 0, 0) == 0
        assert adopts.value == 0
        descriptors = os.listdir(f"/proc/{process.pid}/fd")
    process.kill()
    process.wait(60)
    again = serving(g1_store, tmp_path)
    with again.stdout:
        again.stdout.readline()
        assert len(os.listdir(f"/proc/{again.pid}/fd")) == len(descriptors)
    again.kill()
    again.wait(60)


def test_threads_may_start_them_at_the_same_time(tmp_path: Path, g1_store: Path) -> None:
    folders = [tmp_path / str(number) for number in range(8)]
    for folder in folders:
        folder.mkdir()
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda folder: ended(folder, "find", str(g1_store), "0", "--json"), folders))
    assert {code for code, _, _ in found} == {0}
    assert len({printed for _, printed, _ in found}) == 1
