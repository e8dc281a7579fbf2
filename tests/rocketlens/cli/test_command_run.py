"""How a command ends when a signal stops it, and where its progress goes."""

import errno
import os
import signal
from collections.abc import Iterator
from typing import NoReturn

import pytest

from bulk_jobs import StandIn, stand_in
from protocol.errors import RocketLensError, StoreError
from rocketlens.cli import command_run
from rocketlens.cli.command_run import rebuild, run_command
from spark_jobs.run._spark_calls import TaskFailed
from spark_jobs.run.report import Report


@pytest.fixture
def handlers() -> Iterator[None]:
    """Handlers of signals are as they were when the test is over."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_even_if_it_was_ignored_and_a_second_one_is_of_no_use(
    capsys: pytest.CaptureFixture[str], number: int
) -> None:
    signal.signal(number, signal.SIG_IGN)

    def job(_options: object, _progress: object, _launch: object) -> Report:
        os.kill(os.getpid(), number)
        raise AssertionError("the signal did not stop the job")

    with pytest.raises(SystemExit) as stopped:
        run_command(job, as_json=False, store="/store")
    assert stopped.value.code == 130
    assert capsys.readouterr().err == "rocketlens: stopped; run the same command again to continue\n"
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    return stand_in(monkeypatch)


@pytest.mark.parametrize(("as_json", "told"), [(False, "rocketlens: working\n"), (True, "")])
def test_under_spark_submit_json_stands_alone(
    job: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], as_json: bool, told: str
) -> None:
    """There stdout and stderr are one."""
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    with pytest.raises(SystemExit):
        run_command(rebuild, as_json=as_json, store="/store", index=True)
    assert job.request.index
    assert capsys.readouterr().err == told


def full() -> OSError:
    return OSError(errno.ENOSPC, "No space left on device", "/out/part")


def raised_from(error: RocketLensError) -> RocketLensError:
    error.__cause__ = full()
    return error


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (full(), 2, "/out/part cannot be written: No space left on device"),
        (raised_from(TaskFailed("/out/part: No space left on device")), 2, "/out/part: No space left on device"),
        (raised_from(StoreError("/store/index", what="cannot be put in place")), 2, "/store/index: cannot be put"),
        (StoreError("/store/index", what="cannot be listed"), 3, "/store/index: cannot be listed"),
    ],
)
def test_a_full_disk_ends_a_job_as_it_ends_every_command(
    error: Exception, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def job(*_: object) -> NoReturn:
        raise error

    monkeypatch.setattr(command_run, "check_spark", lambda: None)
    with pytest.raises(SystemExit) as end:
        run_command(job, as_json=False, store="/store")
    assert end.value.code == code
    assert f"rocketlens: {said}" in capsys.readouterr().err
