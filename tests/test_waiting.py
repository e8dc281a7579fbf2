"""That waiting is explicit: nothing declares what a thread may, and the event loop calls no plain method of storage."""

import ast
import importlib
import inspect
import pkgutil
from pathlib import Path

import storage.log
import storage.query
import storage.queue
import storage.store

ROOT = Path(__file__).parent.parent
ON_THE_LOOP = ("broker/service", "broker/net", "broker/lane", "broker/security", "broker/workers")
"""Folders whose code answers requests on the event loop."""

ELSEWHERE = {
    ("broker/service/long_polling.py", "queue"): "`wake` may wait: the thread that follows the store calls it",
    ("broker/service/consumers/subscriptions.py", "make"): "a filter of the store's own configuration",
    ("broker/service/store_answers.py", "record_at"): "a question about the whole store has begun with `Wait`",
    ("broker/service/processors/whole_store.py", "record_at"): "a question about the whole store has begun with `Wait`",
}
"""Plain methods that are called there on a thread that may wait, and why."""


def sources(*folders):
    for folder in folders:
        paths = sorted((ROOT / folder).rglob("*.py"))
        assert paths, folder
        for path in paths:
            yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def twins() -> set[str]:
    """Names of methods that wait for the disk, and that have a look-up beside them."""
    found = {"make"}
    for package in (storage.log, storage.query, storage.queue, storage.store):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            for _, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
                found |= {name for name in dir(kind) if hasattr(kind, f"{name}_lookup")}
    return found - {"read"}  # files of all kinds are read


def calls(tree: ast.Module, names: set[str]) -> set[str]:
    """Which of some methods a module calls, or hands on."""
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} & names


def test_what_answers_requests_calls_no_method_that_waits() -> None:
    # `queue` and `entries` are names of other things too; as methods they are called.
    found, waiting = set(), twins()
    for path, tree in sources(*ON_THE_LOOP):
        called = {
            node.func.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        }
        found |= {(path, name) for name in called & waiting}
    assert found == set(ELSEWHERE)
