"""How tests are shared out among several processes with ``-n``, and what becomes of them when one of these dies.

A plugin of pytest, of which tests/conftest.py is made.
"""

import signal
import subprocess

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

TOGETHER = {
    "tests/spark_jobs/run/test_cluster.py": "cluster",
    "tests/spark_jobs/build/test_killed_rebuild.py": "kills",
    "tests/spark_jobs/commands/test_commands.py": "commands",
    "tests/interop/": "JVMs",
    "tests/broker/web/browser/": "browser",
    "tests/spark_jobs/": "Spark",
    "tests/broker/cli/test_rebuild.py": "Spark",
}
"""What shares the JVMs of clients, the browser or the Spark session: it stays in one process when there are several.

The first three start JVMs of their own.
"""

FIRST = (
    *("Spark", "JVMs", "cluster", "tests/test_build.py", "tests/test_packaging.py", "tests/test_compose.py"),
    *("tests/test_sanitizers.py", "kills", "commands", "browser"),
)
"""What takes longest, so that no process works alone at the end; the rest follows by how many tests it has."""


class Scheduling(LoadScopeScheduling):
    """With ``-n`` a file's tests stay together, and so do those of `TOGETHER`; those of `FIRST` begin."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        for name in reversed(FIRST):
            if name in self.workqueue:
                self.workqueue.move_to_end(name, last=False)
        super()._assign_work_unit(node)

    def _split_scope(self, nodeid: str) -> str:
        return next((name for start, name in TOGETHER.items() if nodeid.startswith(start)), nodeid.split("::")[0])

    def remove_node(self, node: WorkerController) -> str | None:
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


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    """xdist's own groups rename tests, which pytest 9.2 does not take."""
    return Scheduling(config, log)


def pytest_handlecrashitem(report: pytest.TestReport) -> None:
    """Say by which signal a process ended that ran a test, or with which exit code."""
    node: WorkerController = report.node  # type: ignore[attr-defined]
    process: subprocess.Popen[bytes] = node.gateway._io.popen
    process.kill()  # nobody can talk to it any more; one that lives on would be waited for without end
    code = process.wait()
    report.longrepr = f"{report.longrepr}: {signal.Signals(-code).name if code < 0 else f'exit code {code}'}"
