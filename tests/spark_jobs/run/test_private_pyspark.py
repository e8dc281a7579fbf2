"""No private part of PySpark is used but those that one module names, with the reason."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
HERE = Path("spark_jobs/run/_private_pyspark.py")
PACKAGES = ("rocketlens", "spark_jobs")
"""Others may not import PySpark."""

PRIVATE_MODULES = ("pyspark.cloudpickle", "pyspark.find_spark_home", "pyspark.java_gateway", "pyspark.traceback_utils")
OBJECTS = ("SparkConf", "SparkContext", "context", "rdd", "rows", "session", "spark")
"""What PySpark's objects are called by in our source."""


def private_parts(source: str) -> Iterator[str]:
    """Names of PySpark's private attributes and modules, by a walk of the syntax."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            owner = node.value
            name = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
            if name.lstrip("_") in OBJECTS:
                yield node.attr
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pyspark"):
            for each in node.names:
                if each.name.startswith("_") or {node.module, f"{node.module}.{each.name}"} & set(PRIVATE_MODULES):
                    yield each.name
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in PRIVATE_MODULES)


def test_one_module_alone_uses_private_parts_and_names_each() -> None:
    sources = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    assert len(sources) > 200
    texts = {path.relative_to(ROOT): path.read_text() for path in sources}
    suspects = re.compile(rf"pyspark|\b_*(?:{'|'.join(OBJECTS)})\._")
    used = {path: set(private_parts(text)) for path, text in texts.items() if suspects.search(text)}
    found = {path: names for path, names in used.items() if names}
    assert list(found) == [HERE]
    described = (ast.get_docstring(ast.parse((ROOT / HERE).read_text())) or "").split("\n\n")[1]
    assert {name for name in found[HERE] if name not in described} == set()


@pytest.mark.parametrize(
    "source",
    [
        "jvm = self._context._jvm",
        "java = session.sparkContext._jsc",
        "import pyspark.cloudpickle",
        "from pyspark.find_spark_home import _find_spark_home",
    ],
)
def test_private_parts_are_noticed(source: str) -> None:
    assert list(private_parts(source.replace("session.sparkContext", "session.context")))
