"""What a process of tests leaves behind that dies under a judge: a plugin of its pytest.

build_backend/judges.py puts it beside the judged kernels. As long as a process runs tests, or if it died over one, a
file `running.PID` there names the last that it began.
"""

import os
from pathlib import Path

_RUNNING = Path(__file__).with_name(f"running.{os.getpid()}")


def pytest_runtest_setup(item) -> None:
    if "ASAN_OPTIONS" in os.environ:
        os.environ["ASAN_OPTIONS"] = os.environ["ASAN_OPTIONS"].removesuffix(":handle_sigbus=1")
    _RUNNING.write_text(item.nodeid)


def pytest_unconfigure() -> None:
    _RUNNING.unlink(missing_ok=True)
