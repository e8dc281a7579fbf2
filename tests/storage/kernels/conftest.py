"""Tests that cut a file under its map run in a child each: the count of cuts is the process's, and stores ask it."""

import inspect
import os
import traceback
import warnings

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is marked `apart` in a forked child; what it prints and raises is shown with the failure."""
    if pyfuncitem.get_closest_marker("apart") is None:
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: the other threads are not in the child
        child = os.fork()
    if child == 0:
        code = 1
        try:
            pyfuncitem.obj(**arguments)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, "see what the child printed"
    return True
