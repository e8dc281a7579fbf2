"""Thousands of connections that idle, crawl, open and close: the others are served as ever, and nothing leaks."""

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from broker.endpoint import Endpoint
from measured_waits import p99, private_bytes, waits
from process import ROOT, Serving, serving_process

DEADLINE_SECONDS = 60.0
GROWTH_BYTES = 24 * 1024 * 1024
SLACK_SECONDS = 0.0005
"""What the scheduler may add to a wait on a machine whose cores the load shares."""


def worker_of(server: Serving) -> Path:
    (worker,) = server.workers
    return Path(f"/proc/{worker}")


def under_load(worker: Path, endpoint: Endpoint, load: tuple[int, int, int, float]) -> tuple[int, list[float], int]:
    """Descriptors, waits of one client and private memory of the server while the load is on."""
    command = [sys.executable, str(ROOT / "tests" / "support" / "port_load.py"), *map(str, (endpoint.port, *load))]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)}
    ) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "ready\n"
        loaded = waits(endpoint, load[-1] * 0.8)
        most = len(os.listdir(worker / "fd"))  # by now those that waited to be accepted are there
        peak = private_bytes(worker)
        run.stdout.read()
    return most, loaded, peak


def until_closed(worker: Path, descriptors: int) -> None:
    """Wait until no more descriptors are open than before."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(os.listdir(worker / "fd")) > descriptors:
        assert time.monotonic() < deadline, "descriptors leak"
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("idle", "slow", "rate", "seconds"), [(300, 60, 100, 4), pytest.param(9000, 1000, 1000, 60, marks=pytest.mark.soak)]
)
def test_others_are_served_as_ever_and_nothing_leaks(
    g1_store: Path, tmp_path: Path, idle: int, slow: int, rate: int, seconds: int
) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(before[1], 65536), before[1]))
    try:
        with serving_process(g1_store, tmp_path, "--state-dir", str(tmp_path / "state")) as server:
            endpoint, worker = server.endpoints[0], worker_of(server)
            quiet = waits(endpoint, min(seconds, 10))
            descriptors = len(os.listdir(worker / "fd"))
            under_load(worker, endpoint, (idle, slow, rate, seconds / 4))
            until_closed(worker, descriptors)
            # What the first crowd took stays with the allocator; a second one finds it there.
            memory = private_bytes(worker)
            most, loaded, peak = under_load(worker, endpoint, (idle, slow, rate, seconds))
            until_closed(worker, descriptors)
            grown = private_bytes(worker) - memory
            print(
                f"{most} descriptors; p99 quiet {p99(quiet) * 1000:.2f} ms, loaded {p99(loaded) * 1000:.2f} ms; private"
                f" memory {memory >> 20} MB, {peak >> 20} MB under load, {grown / 1e6:.1f} MB more afterwards"
            )
            assert most >= idle
            assert grown < GROWTH_BYTES
            assert len(loaded) > 0
            if seconds >= 60:  # a test that runs beside others measures the others
                assert p99(loaded) < 2 * p99(quiet) + SLACK_SECONDS
            assert server.stop() == 0
        assert "Traceback" not in (tmp_path / "stderr").read_text()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
