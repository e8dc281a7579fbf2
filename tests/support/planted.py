"""Modules, ours by name or what ours import, that lie where somebody may import them: each leaves a mark there."""

NAMES = (
    "msgspec", "msgpack", "numpy", "json", "click", "rich", "uvloop", "pyspark", "py4j", "zipfile",
    "storage/__init__", "protocol/__init__", "broker/__init__", "spark_jobs/__init__", "storage/kernels/__init__",
    "site", "sitecustomize", "usercustomize", "encodings/__init__", "daemon", "worker",
)  # fmt: skip

MARK = ".ran-"
CODE = f"""
import os, sys
with open(os.path.join({{directory!r}}, {MARK!r} + __name__), "a") as file:
    file.write(repr(sys.argv) + "\\n")
"""


def plant(directory) -> None:
    for name in NAMES:
        path = directory / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(CODE.format(directory=str(directory)))


def imported(directory):
    return {path.name.removeprefix(MARK): path.read_text() for path in directory.glob(f"{MARK}*")}


FOREIGN_MARK = ".was-imported"


def plant_foreign(directory, *names):
    for name in names:
        (directory / name).mkdir(parents=True)
        (directory / name / "__init__.py").write_text(f"open({str(directory / FOREIGN_MARK)!r}, 'w').close()\n")
    return directory


def was_imported(directory):
    return (directory / FOREIGN_MARK).exists()
