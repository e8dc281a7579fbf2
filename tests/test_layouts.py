"""Every table of bytes in `broker` and `spark_jobs` tiles the `Struct` under it; other packages test theirs."""

import importlib
from pathlib import Path

import pytest

from doors import module_name
from layouts import check_layout, has_layout

ROOT = Path(__file__).parent.parent
MODULES = sorted(
    module_name(ROOT, path)
    for package in ("broker", "rocketlens", "spark_jobs")
    for path in (ROOT / package).rglob("*.py")
    if has_layout(path)
)


@pytest.mark.parametrize("name", MODULES)
def test_a_modules_tables_tile_its_structs(name: str) -> None:
    check_layout(importlib.import_module(name))


def test_the_modules_with_layouts_are_found() -> None:
    assert {"broker.net._proxy_protocol", "spark_jobs.run.blocks", "spark_jobs.run._local_worker"} <= set(MODULES)
