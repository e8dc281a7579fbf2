"""The parts of PySpark that are not documented: all that we use of them, and why there is no public way.

_active_spark_context   which context runs; `SparkContext.getOrCreate` starts one where there is none
_gateway, _jvm          whether there is a JVM; and that there is none any more once ours has ended, without which a
                        process could have no second session
launch_gateway          starts a JVM for a context; one that starts its own has every setting, secrets too, among
                        the arguments of a process, which all users of the machine can read. One that fails leaves the
                        pipe to its process, the local variable `proc`, open
"""

from subprocess import Popen
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # pyspark takes long to import: it is when a session starts
    from pyspark import SparkContext


def running_context() -> "SparkContext | None":
    """Return the context that runs in this process, or None."""
    from pyspark import SparkContext

    return SparkContext._active_spark_context


def running_gateway() -> Any:
    """Return what leads to the JVM of this process, None where none was started, or spark-submit's was not called."""
    from pyspark import SparkContext

    return SparkContext._gateway


def forget_gateway() -> None:
    """Have the next context start a JVM of its own."""
    from pyspark import SparkContext

    SparkContext._gateway = SparkContext._jvm = None


def start_gateway(how: dict[str, Any]) -> Any:
    """Start a JVM as the environment says, its process as `how` says to `subprocess`; what leads to it."""
    from pyspark.java_gateway import launch_gateway

    launch: Any = launch_gateway
    try:
        return launch(popen_kwargs=how)
    except BaseException as failure:
        for frame, _ in walk_tb(failure.__traceback__):
            process = frame.f_locals.get("proc")
            if isinstance(process, Popen) and process.stdin is not None:
                process.stdin.close()
        raise
