"""A plugin of pytest: how tests, and reading them, are shared out among several processes with ``-n``, and what becomes
of tests when one of these dies."""

import contextlib
import functools
import re
import signal

import pytest
from xdist.scheduler import LoadScopeScheduling

SPARK = "Spark"
"""What shares the one session of Spark."""

TOGETHER = {"tests/spark_jobs/run/test_cluster.py": "cluster", "tests/interop/": "JVMs"}
TOGETHER |= {"tests/broker/web/browser/": "browser"}
"""What shares the JVMs of clients or the browser: it stays in one process when there are several."""

FIRST = (
    *(SPARK, "JVMs", "browser", "tests/storage/patterns/test_mask.py", "tests/broker/test_attack.py"),
    *("tests/test_build.py", "tests/test_packaging.py", "tests/spark_jobs/publish/test_fetch.py"),
    *("tests/rocketlens/cli/test_export.py", "tests/spark_jobs/places/test_placed_run.py"),
    *("tests/damage/test_damaged_stores.py", "tests/test_docs.py"),
)
"""What takes longest, so that no process works alone at the end; the rest follows by how many tests it has."""

_SESSION = re.compile(
    r'usefixtures\(("\w+", )*"(spark|engine)"|\bspark: |def test_\w+\((\w+, )*spark\b|\bengine: JobEngine\b|'
    r"def test_\w+\((self, )?session, \w*(store|growing)"
)
"""How a test asks for the session, as a parameter or by `usefixtures`."""


def group_of(nodeid, root):
    """The name of what a test shares a process with: one of `TOGETHER`, or its file; `root` is that of the node ids."""
    name = next((name for start, name in TOGETHER.items() if nodeid.startswith(start)), None)
    file = nodeid.split("::")[0]
    return name or (SPARK if _asks_for_session(root / file) else file)


@functools.cache
def _asks_for_session(path):
    return _SESSION.search(path.read_text()) is not None


class Scheduling(LoadScopeScheduling):
    """With ``-n`` a file's tests stay together, and so do those of `TOGETHER`; those of `FIRST` begin."""

    def _assign_work_unit(self, node) -> None:
        for name in reversed(FIRST):
            if name in self.workqueue:
                self.workqueue.move_to_end(name, last=False)
        super()._assign_work_unit(node)

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid, self.config.rootpath)

    def remove_node(self, node):
        """The test that a process ran when it died, if it had any left; others get the rest of its tests.

        xdist's own hands out that test again, and the files that were done too: a process that gets one of these has
        nothing to do and gets nothing more, so that the run never ends.
        """
        files = self.assigned_work.pop(node)
        left = [(file, test) for file, tests in files.items() for test, is_done in tests.items() if not is_done]
        if not left:
            return None
        file, test = left[0]
        files[file][test] = True
        self.workqueue.update({file: files[file] for file, _ in left if not all(files[file].values())})
        for other in self.assigned_work:
            self._reschedule(other)
        return test


def pytest_collection(session: pytest.Session) -> None:
    """Have each process import other test files first, and only then all of them.

    pytest rewrites the assertions of a file that it has not seen before, which takes longer than all else about it,
    and keeps the result for the next process. In a new clone processes that went through the files in the same order
    would all rewrite all of them.
    """
    process = getattr(session.config, "workerinput", {"workerid": "gw0", "workercount": 1})
    number, count = int(process["workerid"].removeprefix("gw")), process["workercount"]
    if count > 1:
        for path in _test_files(session.config)[number % count :: count]:
            with contextlib.suppress(pytest.Collector.CollectError, pytest.skip.Exception):  # reported in turn
                _ = pytest.Module.from_parent(session, path=path).obj


def _test_files(config):
    """The test files that the command line names, those of folders too."""
    named = [(config.invocation_params.dir / argument.split("::")[0]).resolve() for argument in config.args]
    return sorted(file for path in named for file in ([path] if path.is_file() else path.rglob("test_*.py")))


def refuse_more_sessions(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse a test that would start one more Spark session; raises UsageError, which names it."""
    for item in items:
        asks = "spark" in getattr(item, "fixturenames", ()) and item.get_closest_marker("soak") is None
        if asks and group_of(item.nodeid, config.rootpath) != SPARK:
            raise pytest.UsageError(f"{item.nodeid} shares no Spark session: see tests/support/several_processes.py")


def pytest_xdist_make_scheduler(config, log):
    """xdist's own groups rename tests, which pytest 9.2 does not take."""
    return Scheduling(config, log)


def pytest_handlecrashitem(report: pytest.TestReport) -> None:
    """Say by which signal a process ended that ran a test, or with which exit code."""
    node = report.node  # type: ignore[attr-defined]
    process = node.gateway._io.popen
    process.kill()  # nobody can talk to it any more; one that lives on would be waited for without end
    code = process.wait()
    report.longrepr = f"{report.longrepr}: {signal.Signals(-code).name if code < 0 else f'exit code {code}'}"
