"""Fixtures that every test module may ask for."""

import gc
import os
import signal
import sys
import threading

import pytest
from hypothesis import HealthCheck, settings

from base_directory import disk_path, pytest_configure, pytest_unconfigure  # noqa: F401 - for pytest, as those below
from golden_store import unpack
from needed_tools import pytest_runtest_call, pytest_runtest_setup  # noqa: F401
from several_processes import pytest_collection, pytest_handlecrashitem, pytest_xdist_make_scheduler  # noqa: F401
from several_processes import refuse_more_sessions as refuse_sessions

# How long an example takes says nothing about right or wrong, and CI machines pause.
# `make test` draws as many as it has time for, and as CI does: the same ones each time, but for constants that
# Hypothesis takes from modules that happen to be loaded. `make soak` and, for tests/fuzz, `make fuzz` draw many more.
SLOW = [HealthCheck.too_slow]
settings.register_profile(
    "default", derandomize=True, deadline=None, print_blob=True, max_examples=25, suppress_health_check=SLOW
)
settings.register_profile("soak", settings.get_profile("default"), derandomize=False, max_examples=300)
settings.register_profile("fuzz", settings.get_profile("default"), derandomize=False, max_examples=20_000)
settings.load_profile("default")


# Garbage of this process is none of a forked child: to delete a channel of gRPC there waits for a thread that only the
# parent has.
os.register_at_fork(after_in_child=gc.freeze)


MANY_DESCRIPTORS = 500
"""Half of what a process may have by default."""


@pytest.fixture(autouse=True)
def secrets_of_this_test_alone():
    """Forget the secrets that a test has the product keep: in texts of later tests they may be a part of any name."""
    redaction = sys.modules.get("protocol.redaction")
    before = {} if redaction is None else dict(redaction._spellings)
    yield
    redaction = sys.modules.get("protocol.redaction")
    if redaction is not None and redaction._spellings != before:
        redaction._spellings.clear()
        redaction._spellings.update(before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Have coverage look away from tests in which plain Python judges whole stores; tracing makes it much slower."""
    if item.get_closest_marker("untraced") is None:
        return (yield)
    tracer, tracer_of_threads = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)
    try:
        return (yield)
    finally:
        threading.settrace(tracer_of_threads)
        sys.settrace(tracer)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Let Ctrl-C end what tests start, even where a shell in the background has it ignored: processes inherit that.

    Until all tests are collected, the garbage collector is off: it would go through millions of objects that stay.
    """
    if not session.config.getoption("numprocesses", None):  # a process that shares out tests collects none
        gc.disable()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Have the garbage collector look away from the millions of objects of the tests themselves, which all stay.

    It looks at the others less often than it would: what tests make is mostly gone before it is looked for.
    """
    gc.collect()
    gc.enable()
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)


@pytest.hookimpl(trylast=True)
def pytest_runtest_logfinish() -> None:
    """Let stores go that tests left in cycles, before their maps take all descriptors that a process may have."""
    if len(os.listdir("/proc/self/fd")) > MANY_DESCRIPTORS:
        gc.collect()


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--no-fast-lane` has all servers answer everything on the ordinary way, and leaves out tests of the lane."""
    parser.addoption("--no-fast-lane", action="store_true", help="serve without the fast lane")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    refuse_sessions(config, items)
    if config.getoption("--no-fast-lane"):
        left_out = [item for item in items if item.get_closest_marker("lane")]
        items[:] = [item for item in items if not item.get_closest_marker("lane")]
        config.hook.pytest_deselected(items=left_out)


@pytest.fixture(scope="session", autouse=True)
def lane_is_off(pytestconfig):
    """Whether servers go without the fast lane, in this process and in others, unless a test asks for it."""
    is_off = bool(pytestconfig.getoption("--no-fast-lane"))
    with pytest.MonkeyPatch.context() as patch:
        if is_off:
            patch.setattr("broker.app._build_lane", lambda _service: None)
            patch.setattr("process.OPTIONS", ("--no-fast-lane",))
        yield is_off


@pytest.fixture(scope="session", autouse=True)
def state_home(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state-home")))
        yield


@pytest.fixture(scope="session")
def g1_store(tmp_path_factory):
    """The recorded store g1 after a clean stop, unpacked once; no test may change it (copy it first)."""
    return unpack("store", tmp_path_factory.mktemp("g1"))


@pytest.fixture(scope="session")
def g1_crashed_store(tmp_path_factory):
    """The recorded store g1 copied from under its running broker, unpacked once; no test may change it."""
    return unpack("store-crashed", tmp_path_factory.mktemp("g1-crashed"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """An embedded session of two cores on the loopback address; jobs that are run meanwhile use it."""
    from spark_classes import QUICK, quick_python
    from spark_jobs.run.session import spark_context

    events = tmp_path_factory.mktemp("spark-events")
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{events}",
        "spark.eventLog.compress": "false",
        "spark.driver.extraJavaOptions": " ".join(QUICK),
        "spark.pyspark.python": str(quick_python(tmp_path_factory.mktemp("python") / "venv")),
    }
    with spark_context("tests", "local[2]", events, settings) as context:
        yield context
