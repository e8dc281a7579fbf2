"""What a start found out, kept for the next one: by identity, atomically, and never trusted further than it fits."""

from pathlib import Path

import msgpack
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
    cache = StateCache.load(directory)
    cache.note_shape(PATH, IDENTITY, KnownShape(SHAPE, True, False, SEGMENTS))
    cache.note_end_of_data(IDENTITY, 1234)
    cache.save()
    return StateCache.load(directory)


class TestKeeping:
    def test_what_was_noted_is_there_at_the_next_start_for_files_in_that_state(self, tmp_path: Path) -> None:
        cache = saved(tmp_path)
        assert cache.shape_of(PATH, IDENTITY) == (SHAPE, True, False, SEGMENTS)
        assert cache.known_ends() == {IDENTITY: 1234}
        for field in FileIdentity._fields:
            assert cache.shape_of(PATH, IDENTITY._replace(**{field: getattr(IDENTITY, field) + 1})) is None

    def test_a_state_directory_that_takes_no_files_costs_only_time(self, tmp_path: Path) -> None:
        (tmp_path / "state").write_text("a file")
        cache = StateCache.load(tmp_path / "state")
        cache.note_end_of_data(IDENTITY, 1)
        cache.save()
        assert StateCache.load(tmp_path / "state").known_ends() == {}


def write(directory, content):
    (directory / FILE_NAME).write_bytes(content if isinstance(content, bytes) else msgpack.packb(content))
    return StateCache.load(directory)


def entry(**changes):
    fields = {
        "slots": 97, "entries": 150, "minimum": 0, "maximum": 4000, "ascending": True, "gaps": [[10, 20], [30, 40]],
        "compacted": 0, "sound": True, "has_tags": False, "segments": [list(segment) for segment in SEGMENTS],
    }  # fmt: skip
    return {"version": 3, "files": {str(PATH): [list(IDENTITY), list({**fields, **changes}.values())]}}


class TestDistrust:
    """The file may be of another version, cut, damaged or forged, and kernels read memory at positions from it."""

    def test_what_is_no_cache_of_this_version_is_empty(self, tmp_path: Path) -> None:
        forged = [b"", b"\xc1", b"garbage" * 100, b"\x91" * 5000, b"\xdf\xff\xff\xff\xff", [], {"version": 3}]
        for content in (*forged, {"version": 3, "files": []}, {"version": 2, "files": entry()["files"]}):
            cache = write(tmp_path, content)
            assert cache.shape_of(PATH, IDENTITY) is None
            assert cache.known_ends() == {}

    def test_counts_that_the_file_cannot_hold_are_thrown_away(self, tmp_path: Path) -> None:
        impossible = {
            "slots": [0, 2**62, 2400, None, "x", float("inf"), float("nan")],
            "entries": [-1, 10**6, 2**63],
            "minimum": [[], 5000],
            "maximum": [2**63],
            "gaps": [5, [[1]], [["a", "b"]], [[1, 2**63]], [[20, 10]], [[30, 40], [10, 20]], [[-1, 3]], [[10, 4001]]],
            "compacted": [-1, 151, None],
            "segments": [7, [[1, 2]], [5]],
        }
        for changes in ({field: value} for field, values in impossible.items() for value in values):
            assert write(tmp_path, entry(**changes)).shape_of(PATH, IDENTITY) is None

    values = st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=12,
    )

    @settings(max_examples=examples(8), suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.integers(0, 9), values)
    def test_any_value_in_one_field_is_a_finding_or_none(self, tmp_path, field, value) -> None:
        content = entry()
        content["files"][str(PATH)][1][field] = value
        cache = write(tmp_path, content)
        found = cache.shape_of(PATH, IDENTITY)
        if found is not None:
            assert found[0].slots > 0
            assert 40 + 4 * found[0].slots + 20 * found[0].entries <= IDENTITY.size
        cache.known_ends()
