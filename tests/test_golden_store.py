"""The recorded stores come out of their archives as they were recorded."""

import tarfile
from pathlib import Path

import pytest

from golden_store import G1, unpack


@pytest.mark.parametrize("name", ["store", "store-crashed"])
def test_an_unpacked_store_has_every_file_of_the_archive_in_its_full_size(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    with tarfile.open(G1 / f"{name}.tar.xz") as archive:
        expected = {member.name: member.size for member in archive.getmembers() if member.isfile()}
    found = {str(path.relative_to(tmp_path)): path.stat().st_size for path in root.rglob("*") if path.is_file()}
    assert found == expected
    assert (root / "commitlog" / "00000000000000000000").stat().st_size == 131072


def test_holes_of_a_sparse_file_read_as_zeros(g1_store: Path) -> None:
    index = max((g1_store / "index").iterdir())
    assert index.stat().st_size == 40 + 4 * 97 + 20 * 150
    assert index.read_bytes().endswith(bytes(20))
