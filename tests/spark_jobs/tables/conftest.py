"""The store that tables are made of."""

from pathlib import Path

import pytest

from exported_files import write_days
from store_writer import StoreWriter


@pytest.fixture
def store(tmp_path: Path) -> StoreWriter:
    """Two segments: messages of two topics and three days."""
    writer = StoreWriter(tmp_path / "store", segment_size=4096)
    write_days(writer, 36)
    return writer
