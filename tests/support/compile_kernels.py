"""Compiles every kernel, so that test processes that start together find them there: `make test` runs it."""

import importlib
import pkgutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

for folder in ("storage.kernels", "broker.kernels"):
    package = importlib.import_module(folder)
    for module in pkgutil.iter_modules(package.__path__, f"{folder}."):
        importlib.import_module(module.name)
