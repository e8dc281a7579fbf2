"""A directory that was bound to a place of its own file system is a mount point, whatever its name."""

import os
import subprocess
from pathlib import Path

import pytest

from storage.files import mount_points
from storage.files.mount_points import is_mount_point


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
@pytest.mark.parametrize("name", ["store", "a store\tof\\ours\nbelow"])
def test_what_is_bound_within_one_file_system_cannot_be_renamed_and_is_a_mount_point(tmp_path: Path, name: str) -> None:
    root = tmp_path / name
    root.mkdir()
    assert not is_mount_point(root)
    subprocess.run(["mount", "--bind", str(root), str(root)], check=True)
    try:
        assert is_mount_point(root)
        assert not is_mount_point(tmp_path)
        with pytest.raises(OSError, match="busy"):
            root.rename(tmp_path / "elsewhere")
    finally:
        subprocess.run(["umount", "--lazy", str(root)], check=True)
    assert not is_mount_point(root)


def test_without_a_list_of_mounts_other_file_systems_are_still_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mount_points, "MOUNTS", tmp_path / "none")
    assert is_mount_point(Path("/"))
    assert not is_mount_point(tmp_path)
