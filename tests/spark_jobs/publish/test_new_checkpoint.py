"""The checkpoint of rebuilt index files: one number of it changes, at the place the reference gives."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles import packed
from protocol.errors import StoreError, TruncatedFile
from spark_jobs.publish._new_checkpoint import latest_end_timestamp, write_checkpoint

TIMESTAMPS = st.integers(-(1 << 63), (1 << 63) - 1)


@given(content=st.binary(min_size=48, max_size=6000), timestamp=TIMESTAMPS)
def test_only_bytes_16_to_24_change(content: bytes, timestamp: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("checkpoint")
    (directory / "old").write_bytes(content)
    write_checkpoint(directory / "old", directory / "new", index_msg_timestamp=timestamp)
    assert (directory / "new").read_bytes() == content[:16] + packed(timestamp, 8) + content[24:]
    assert (directory / "old").read_bytes() == content


@pytest.mark.parametrize("length", [None, 0, 20, 47])
def test_what_is_missing_is_zero_as_a_broker_would_make_it(tmp_path: Path, length: int | None) -> None:
    content = bytes(range(1, 48))[: length or 0]
    if length is not None:
        (tmp_path / "old").write_bytes(content)
    write_checkpoint(tmp_path / "old", tmp_path / "new", index_msg_timestamp=0x0102030405060708)
    expected = content.ljust(4096, b"\0")
    assert (tmp_path / "new").read_bytes() == expected[:16] + bytes(range(1, 9)) + expected[24:]


@pytest.mark.parametrize("kind", ["directory", "too long"])
def test_what_is_no_checkpoint_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    if kind == "directory":
        (tmp_path / "old").mkdir()
    else:
        with (tmp_path / "old").open("wb") as file:
            file.truncate(1 << 40)
    with pytest.raises(StoreError, match="/old: is "):
        write_checkpoint(tmp_path / "old", tmp_path / "new", index_msg_timestamp=1)
    assert not (tmp_path / "new").exists()


def test_the_latest_end_is_the_largest_and_not_the_last(tmp_path: Path) -> None:
    """Clocks step back."""
    for name, end in (("20240101000000000", 5), ("20240101000000001", 900), ("20240101000000002", 7)):
        (tmp_path / name).write_bytes(packed(1000, 8) + packed(end, 8) + bytes(24 + 20))
    (tmp_path / "directory").mkdir()
    assert latest_end_timestamp(tmp_path) == 900


def test_an_index_without_files_has_no_end(tmp_path: Path) -> None:
    assert latest_end_timestamp(tmp_path) is None
    with pytest.raises(StoreError, match="nowhere: cannot be listed: No such file"):
        latest_end_timestamp(tmp_path / "nowhere")


@pytest.mark.parametrize("length", [0, 39])
def test_a_file_without_a_whole_header_is_refused(tmp_path: Path, length: int) -> None:
    (tmp_path / "20240101000000000").write_bytes(bytes(length))
    with pytest.raises(TruncatedFile, match=f"needs 40 bytes, but only {length} are there"):
        latest_end_timestamp(tmp_path)
