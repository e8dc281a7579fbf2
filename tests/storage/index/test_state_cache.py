"""What a start found out, kept for the next one: by identity, atomically, and never trusted further than it fits."""

from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from examples import examples
from storage.files.mapped_file import FileIdentity
from storage.index._index_shape import IndexShape
from storage.index.state_cache import FILE_NAME, KnownShape, StateCache

PATH = Path("/store/index/20260101000000000")
IDENTITY = FileIdentity(1, 2, 10_000, 3)
SEGMENTS = [FileIdentity(1, 7, 100, 5), FileIdentity(1, 8, 100, 6)]
SHAPE = IndexShape(97, 150, 0, 4000, True, ((10, 20), (30, 40)))


def saved(directory: Path) -> StateCache:
    """A cache with one finding of each kind, read back."""
    cache = StateCache.load(directory)
    cache.note_shape(PATH, IDENTITY, KnownShape(SHAPE, True, False, SEGMENTS))
    cache.note_end_of_data(IDENTITY, 1234)
    cache.save()
    return StateCache.load(directory)


class TestKeeping:
    def test_what_was_noted_is_there_at_the_next_start(self, tmp_path: Path) -> None:
        cache = saved(tmp_path)
        assert cache.shape_of(PATH, IDENTITY) == (SHAPE, True, False, SEGMENTS)
        assert cache.known_ends() == {IDENTITY: 1234}

    @pytest.mark.parametrize("field", FileIdentity._fields)
    def test_a_file_in_another_state_is_not_known(self, tmp_path: Path, field: str) -> None:
        other = IDENTITY._replace(**{field: getattr(IDENTITY, field) + 1})
        assert saved(tmp_path).shape_of(PATH, other) is None

    def test_without_a_state_directory_nothing_is_kept(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        cache = StateCache.load(None)
        cache.note_end_of_data(IDENTITY, 1)
        cache.save()
        assert list(tmp_path.iterdir()) == []

    def test_writing_replaces_the_file_whole_and_leaves_nothing_beside_it(self, tmp_path: Path) -> None:
        saved(tmp_path)
        before = (tmp_path / FILE_NAME).stat().st_ino
        cache = StateCache.load(tmp_path)
        cache.note_end_of_data(IDENTITY, 99)
        cache.save()
        assert (tmp_path / FILE_NAME).stat().st_ino != before
        assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]

    def test_a_state_directory_that_takes_no_files_costs_only_time(self, tmp_path: Path) -> None:
        (tmp_path / "state").write_text("a file")
        cache = StateCache.load(tmp_path / "state")
        cache.note_end_of_data(IDENTITY, 1)
        cache.save()
        assert StateCache.load(tmp_path / "state").known_ends() == {}


def write(directory: Path, content: Any) -> StateCache:
    (directory / FILE_NAME).write_bytes(content if isinstance(content, bytes) else msgpack.packb(content))
    return StateCache.load(directory)


def entry(**changes: Any) -> dict[str, Any]:
    """The file's content for one index file, with fields of the finding changed."""
    fields: dict[str, Any] = {
        "slots": 97, "entries": 150, "minimum": 0, "maximum": 4000, "ascending": True, "gaps": [[10, 20], [30, 40]],
        "compacted": 0, "sound": True, "has_tags": False, "segments": [list(segment) for segment in SEGMENTS],
    }  # fmt: skip
    return {"version": 3, "files": {str(PATH): [list(IDENTITY), list({**fields, **changes}.values())]}}


class TestDistrust:
    """The file may be of another version, cut, damaged or forged, and kernels read memory at positions from it."""

    def test_what_is_no_cache_of_this_version_is_empty(self, tmp_path: Path) -> None:
        for content in [
            b"",
            b"\xc1",
            b"\x00",
            b"garbage" * 100,
            b"\x81\x90\xc0",
            b"\x91" * 5000,
            b"\xdf\xff\xff\xff\xff",
            b"\x81\xa5files\xc7\x0c\xff" + b"\xff" * 12,
            [],
            "text",
            {"version": 3},
            {"version": 3, "files": []},
            {"version": 2, "files": entry()["files"]},
            {"version": 4, "files": entry()["files"]},
            {"files": entry()["files"]},
        ]:
            cache = write(tmp_path, content)
            assert cache.shape_of(PATH, IDENTITY) is None
            assert cache.known_ends() == {}

    def test_counts_that_the_file_cannot_hold_are_thrown_away(self, tmp_path: Path) -> None:
        for changes in [
            {"slots": 0},
            {"slots": -1},
            {"slots": 2**62},
            {"entries": -1},
            {"entries": 10**6},
            {"entries": 2**63},
            {"slots": 2400},
            {"slots": None},
            {"slots": "x"},
            {"slots": float("inf")},
            {"slots": float("nan")},
            {"minimum": []},
            {"maximum": -float("inf")},
            {"maximum": 2**63},
            {"minimum": 5000},
            {"gaps": 5},
            {"gaps": [[1]]},
            {"gaps": [[1, 2, 3]]},
            {"gaps": [["a", "b"]]},
            {"gaps": [[1, 2**63]]},
            {"gaps": [[20, 10]]},
            {"gaps": [[30, 40], [10, 20]]},
            {"gaps": [[-1, 3]]},
            {"gaps": [[10, 4001]]},
            {"compacted": -1},
            {"compacted": 151},
            {"compacted": None},
            {"segments": 7},
            {"segments": [[1, 2]]},
            {"segments": [5]},
        ]:
            assert write(tmp_path, entry(**changes)).shape_of(PATH, IDENTITY) is None

    values = st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=12,
    )

    @settings(max_examples=examples(12), suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(values, values)
    def test_any_values_are_findings_or_none(self, tmp_path: Path, finding: Any, end: Any) -> None:
        files = {str(PATH): [list(IDENTITY), finding], "end of data": end}
        self.look_at(write(tmp_path, {"version": 3, "files": files}))

    @settings(max_examples=examples(12), suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.integers(0, 9), values)
    def test_any_value_in_one_field_is_a_finding_or_none(self, tmp_path: Path, field: int, value: Any) -> None:
        content = entry()
        content["files"][str(PATH)][1][field] = value
        self.look_at(write(tmp_path, content))

    @staticmethod
    def look_at(cache: StateCache) -> None:
        found = cache.shape_of(PATH, IDENTITY)
        if found is not None:
            shape = found[0]
            assert shape.slots > 0
            assert 40 + 4 * shape.slots + 20 * shape.entries <= IDENTITY.size
        cache.known_ends()
