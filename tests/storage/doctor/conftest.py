"""A sound store for the doctor's tests, written once; each test that damages it has a copy."""

import shutil
from pathlib import Path

import pytest

from doctoring import make_store


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sound") / "store"
    make_store(root, 400)[0].close()
    return root


@pytest.fixture
def root(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "store"))
