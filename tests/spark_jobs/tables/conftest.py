"""The store that tables are made of."""

import pytest

from exported_files import write_days
from store_writer import StoreWriter


@pytest.fixture
def store(tmp_path):
    writer = StoreWriter(tmp_path / "store", segment_size=4096)
    write_days(writer, 36)
    return writer
