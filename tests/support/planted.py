"""Modules that lie in a directory for somebody to import by mistake: each leaves a mark where it is."""

from pathlib import Path

NAMES = (
    "msgspec", "msgpack", "numpy", "json", "click", "rich", "uvloop", "pyspark", "py4j", "zipfile",
    "storage/__init__", "protocol/__init__", "broker/__init__", "spark_jobs/__init__", "storage/kernels/__init__",
    "site", "sitecustomize", "usercustomize", "encodings/__init__", "daemon", "worker",
)  # fmt: skip
"""What our processes and Spark's import, and what a Python imports by itself."""

MARK = ".ran-"
CODE = f"""
import os, sys
with open(os.path.join({{directory!r}}, {MARK!r} + __name__), "a") as file:
    file.write(repr(sys.argv) + "\\n")
"""


def plant(directory: Path) -> None:
    """Put such modules into a directory."""
    for name in NAMES:
        path = directory / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(CODE.format(directory=str(directory)))


def imported(directory: Path) -> dict[str, str]:
    """Which of them were imported, and by which processes."""
    return {path.name.removeprefix(MARK): path.read_text() for path in directory.glob(f"{MARK}*")}
