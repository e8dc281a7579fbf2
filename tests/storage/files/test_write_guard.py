"""Places to write to, beside stores and in them."""

import re
from pathlib import Path

import pytest

from protocol.errors import ConfigError
from storage.files.write_guard import check_outside, is_inside


def test_a_store_and_all_in_it_is_inside_whatever_the_way_there(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    (tmp_path / "link").symlink_to(store)
    for place in ("store", "store/new/deep", "other/../store/x", "link/x"):
        assert is_inside(tmp_path / place, store), place
    for place in ("", "store2", "store/../other"):
        assert not is_inside(tmp_path / place, store), place


@pytest.mark.parametrize(
    ("place", "told"),
    [
        (
            "s3://bucket/out",
            "--out s3://bucket/out is a URL: only a path is possible, as of a file system mounted here",
        ),
        ("hdfs://name:8020/a", "--out hdfs://name:8020/a is a URL"),
        ("file:///srv/out", "--out file:///srv/out is a URL: write the path alone, /srv/out"),
    ],
)
def test_a_url_is_no_path_also_when_it_was_taken_for_one(tmp_path: Path, place: str, told: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(told)}"):
        check_outside([tmp_path], {"--out": Path(place)})
    with pytest.raises(ConfigError, match=f"^{re.escape(told.replace('--out', 'STORE'))}"):
        check_outside([Path(place)], {})
    check_outside([tmp_path / "a:b"], {"--out": tmp_path / "s3:" / "c", "--work": Path("a:b/c")})


def test_the_option_is_named_whose_place_lies_in_one_of_the_directories(tmp_path: Path) -> None:
    stores = (tmp_path / "store", tmp_path / "log")
    check_outside(stores, {"--out": tmp_path / "out", "--work": None})
    with pytest.raises(ConfigError, match=r"^--work .*/log/work lies inside .*/log: choose a place beside it$"):
        check_outside(stores, {"--out": None, "--work": tmp_path / "log" / "work"})
    with pytest.raises(ConfigError, match="lies inside the store"):
        check_outside(stores[:1], {"--out": tmp_path / "store"})
