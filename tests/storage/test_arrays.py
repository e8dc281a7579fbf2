"""Modules that are loaded when something of them is needed."""

import importlib
import sys

import pytest

from storage import arrays


def test_a_module_is_loaded_by_the_first_use_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    later = arrays._Later("colorsys")
    assert "colorsys" not in sys.modules
    found = later.rgb_to_hsv
    assert found is importlib.import_module("colorsys").rgb_to_hsv
    assert vars(later)["rgb_to_hsv"] is found
