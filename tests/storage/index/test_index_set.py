"""Index files, the set of them and what is kept of it: what each covers, and what the log has to be scanned for."""

import os
from pathlib import Path
from unittest.mock import Mock

import msgpack
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import growing_index
import oracles
from examples import examples
from golden_store import GOLDEN, unpack
from oracles import IndexImage
from protocol.errors import StoreError
from storage.files.mapped_file import FileIdentity, MappedFile
from storage.index import index_copy, index_examination
from storage.index._index_shape import MAXIMUM_GAPS, IndexShape
from storage.index.index_copy import IndexCopy, IndexCounts, count_entries, count_slots, data_extents
from storage.index.index_examination import grown_shape
from storage.index.index_file import HEADER, IndexFile, determine_shape, read_header
from storage.index.index_mark import IndexMark, write_mark
from storage.index.index_set import CoveringFile, IndexSet
from storage.index.state_cache import FILE_NAME, KnownShape, StateCache
from storage.kernels.indexes import GAP_BYTES
from storage.log.commit_log import CommitLog
from store_files import write_file, write_index_file
from store_writer import StoreWriter
from strategies import KEYS


def opened(writer: StoreWriter, vouched: tuple[int, int] | None = None) -> IndexSet:
    return IndexSet.open(writer.root / "index", CommitLog.open(writer.log.directories), vouched, StateCache(None))


def filled(root, count, **options):
    with StoreWriter(root, **{"index_slots": 31, "index_entries": 10, **options}) as writer:
        for number in range(count):
            writer.append("T", keys=f"k{number}", unique_key=f"u{number}")
    return writer


def span(start: int, stop: int, *gaps: tuple[int, int]) -> IndexShape:
    return IndexShape(7, 5, start, stop, True, gaps)


@pytest.mark.parametrize(("start", "shapes", "expected"), [
    (0, [], [(0, 1000)]),
    (0, [span(100, 400), span(400, 900)], [(0, 101), (400, 401), (900, 1000)]),
    (0, [span(100, 400), span(500, 900)], [(0, 101), (400, 501), (900, 1000)]),
    (0, [span(100, 600), span(400, 900)], [(0, 101), (900, 1000)]),
    (0, [span(100, 900, (300, 400), (500, 900))], [(0, 101), (300, 401), (500, 901), (900, 1000)]),
    (0, [span(100, 100)], [(0, 101), (100, 1000)]),
    (0, [span(100, 5000)], [(0, 101)]),
    (0, [span(2000, 5000)], [(0, 1000)]),
    (500, [span(100, 400)], [(500, 1000)]),
    (500, [span(100, 400), span(600, 800)], [(500, 601), (800, 1000)]),
    (500, [span(100, 1000)], []),
])  # fmt: skip
def test_ranges_to_be_scanned_reach_from_one_covered_range_to_the_next(tmp_path, start, shapes, expected) -> None:
    (tmp_path / "any").write_bytes(bytes(100))
    file = MappedFile.open(tmp_path / "any")
    files = [CoveringFile(IndexFile(file, shape), True) for shape in shapes]
    assert IndexSet(files, [], (0, 0)).uncovered(start, 1000) == expected


class TestOpening:
    def test_a_directory_that_cannot_be_listed_is_a_problem(self, tmp_path) -> None:
        (tmp_path / "index").write_text("a file")
        index = IndexSet.open(tmp_path / "index", CommitLog([], []), None, StateCache(None))
        assert index.problems == (
            f"{tmp_path / 'index'} cannot be listed: Not a directory; every key is looked for in the log",
        )

    def test_what_is_no_index_file_is_named_and_ignored(self, tmp_path) -> None:
        writer, path = filled(tmp_path, 5), tmp_path / "index" / "2026010100000000"
        path.write_bytes(bytes(1000))
        assert opened(writer).problems == (f"{path} is no index file and is ignored",)

    def test_names_in_other_digits_and_other_calendars_are_index_files(self, tmp_path) -> None:  # th-TH, ar-EG
        writer = filled(tmp_path, 30)
        paths = writer.index_paths()
        arabic = "".join(chr(0x660 + int(digit)) for digit in paths[1].name)
        paths[0].rename(paths[0].with_name("2569" + paths[0].name[4:]))
        paths[1].rename(paths[1].with_name(arabic))
        index = opened(writer)
        assert (index.problems, len(index.files)) == ((), len(paths))

    def test_an_empty_file_covers_nothing_and_is_no_problem(self, tmp_path) -> None:
        with StoreWriter(tmp_path, index_slots=31, index_entries=3) as writer:
            writer.append("T", keys="a b")
            writer.append("T", b"no keys: opens the next file and puts nothing into it")
        index = opened(writer)
        assert (len(writer.index.files), len(index.files), index.problems) == (2, 1, ())


def test_an_undecided_file_asks_for_its_counts_and_is_scanned(tmp_path) -> None:
    writer = filled(tmp_path, 30, index_entries=1000)
    (path,) = writer.index_paths()
    write_file(path, path.stat().st_size, {36: bytes(4)})
    index = opened(writer)
    assert (index.files, index.uncovered(0, writer.log.end)) == ((), [(0, writer.log.end)])
    (problem,) = index.problems
    assert problem.startswith(f"{path}: no slot count reproduces its slots and pointers; its range is scanned")
    assert "--index-slots" in problem
    assert "--index-entries" in problem
    index = opened(writer, (31, 1000))
    assert index.problems == ()
    assert [file.index.shape.entries for file in index.files] == [60]


def test_the_recorded_index_covers_all_but_the_ends_of_its_files(g1_store) -> None:
    root = g1_store
    log = CommitLog.open([root / "commitlog"])
    index = IndexSet.open(root / "index", log, None, StateCache(None))
    assert (index.problems, len(index.files)) == ((), 10)
    assert all(file.has_tags and file.index.shape.ascending and not file.index.shape.gaps for file in index.files)
    ends = {end for file in index.files for end in (file.index.shape.minimum, file.index.shape.maximum)}
    starts = [record.physical_offset for record in oracles.read_log(root / "commitlog")]
    scanned = {s for s in starts if any(a <= s < b for a, b in index.uncovered(log.minimum, log.end))}
    assert scanned <= ends | {start for start in starts if start > max(ends)}


class TestCache:
    def ranges(self, writer, state):
        """What is left to scan, by what is cached or found."""
        cache, log = StateCache.load(state), CommitLog.open(writer.log.directories)
        index = IndexSet.open(writer.root / "index", log, None, cache)
        cache.save()
        return index.uncovered(log.minimum, log.end)

    def test_what_is_cached_is_not_looked_for_again(self, tmp_path, monkeypatch) -> None:
        writer, state = filled(tmp_path / "store", 30), tmp_path / "state"
        first = self.ranges(writer, state)
        for name in ("determine_shape", "probe_index_file", "find_gaps"):
            monkeypatch.setattr(index_examination, name, None)
        assert self.ranges(writer, state) == first

    def test_a_finding_of_before_the_log_was_cut_is_thrown_away(self, tmp_path) -> None:
        """The index file stays as it was, and knows nothing of what was written anew."""
        writer, state = filled(tmp_path / "store", 30, index_entries=1000), tmp_path / "state"
        before = self.ranges(writer, state)
        start = writer.written[20].physical_offset
        writer.overwrite(start, bytes(writer.log.end - start))
        writer.log.end, writer.written = start, writer.written[:20]
        for number in range(40):
            writer.append("T", b"another length", keys=f"new{number}", index=False)
        for path in writer.log.segments.values():
            os.utime(path, ns=(1, 1))  # clocks of file systems may tick too slowly to tell
        ranges = self.ranges(writer, state)
        assert ranges != before
        for written in writer.written[20:]:
            assert any(begin <= written.physical_offset < end for begin, end in ranges)


class Growing:
    def __init__(self, root, **options) -> None:
        self.writer = StoreWriter(root, index_slots=SLOTS, **{"index_entries": 1000, "segment_size": 4096, **options})
        self.index = IndexSet([], [], (0, 0))

    def add(self, *indexed: bool, tags: str | None = "t") -> None:
        for index in indexed:
            number = len(self.writer.written)
            self.writer.append("T", b"x" * 20, keys=f"k{number} a", unique_key=f"u{number}", tags=tags, index=index)
        self.writer.flush()

    @property
    def log(self) -> CommitLog:
        return CommitLog.open(self.writer.log.directories)

    def look(self) -> IndexSet:
        self.index = self.index.renewed(self.writer.root / "index", self.log, None, StateCache(None))
        return self.index

    def anew(self) -> IndexSet:
        return IndexSet.open(self.writer.root / "index", self.log, None, StateCache(None))

    @property
    def file(self) -> IndexFile:
        return self.index.files[-1].index

    def unlisted(self) -> set[int]:
        files = [covering.index for covering in self.index.files]
        listed = [file.entry(number) for file in files for number in range(1, file.shape.entries + 1)]
        entries = {(entry.key_hash, entry.physical_offset) for entry in listed}
        has_tags = all(covering.has_tags for covering in self.index.files)
        return {r.physical_offset for r in self.writer.records if oracles.lacks_entry(r, entries, has_tags)}


@settings(max_examples=examples(5), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.sampled_from([True, True, True, False]), max_size=8), max_size=6),
       st.sampled_from([5, 12, 1000]), st.sampled_from(["5.5", "5.3"]))  # fmt: skip
def test_all_that_has_no_entry_is_left_to_the_scan(tmp_path_factory, steps, entries, profile) -> None:
    growing = Growing(tmp_path_factory.mktemp("steps"), index_entries=entries, profile=profile)
    for indexed in steps:
        growing.add(*indexed)
        index, log = growing.look(), growing.log
        ranges = index.uncovered(log.minimum, log.end)
        assert all(any(start <= o < stop for start, stop in ranges) for o in growing.unlisted())
        assert [f.index.shape.entries for f in index.files] == [
            len(image.entries) for image in growing.writer.index.files if image.entries
        ]
        assert index.last_update == growing.anew().last_update


def test_a_growth_is_taken_in_when_the_header_counts_it(tmp_path) -> None:
    growing = Growing(tmp_path)
    growing.add(*[True] * 3)
    shape = growing.look().files[0].index.shape
    written = growing.writer.append("T", keys="new", index=False)
    image, path = growing.writer.index.files[0], growing.writer.index_paths()[0]
    for content in growing_index.put_in_steps(image, "T#new", written.physical_offset, written.store_timestamp):
        write_file(path, image.size, {0: content})
        grown = grown_shape(growing.file, growing.log, True)
        assert grown is not None
        counted = oracles.signed(content, 36, 4) - 1
        maximum = written.physical_offset if counted > shape.entries else shape.maximum
        assert (grown.entries, grown.maximum) == (counted, maximum)


class TestDamage:
    def test_entries_that_do_not_hold_together_have_the_whole_file_examined(self, tmp_path) -> None:
        growing = Growing(tmp_path)
        growing.add(*[True] * 3)
        growing.look()
        image, path = growing.writer.index.files[0], growing.writer.index_paths()[0]
        growing.add(*[True] * 3)
        entry = 40 + 4 * SLOTS + 20 * len(image.entries)
        write_file(path, image.size, {entry: oracles.packed(-5, 4)})
        assert grown_shape(growing.file, growing.log, True) is None
        assert growing.look().files == ()
        assert "no slot count reproduces" in growing.index.problems[0]

    def test_a_file_of_no_use_is_examined_again_when_it_has_doubled(self, tmp_path, monkeypatch) -> None:
        looks = Mock(wraps=determine_shape)
        monkeypatch.setattr(index_examination, "determine_shape", looks)
        growing = Growing(tmp_path)
        growing.add(*[True] * 4)
        image, path = growing.writer.index.files[0], growing.writer.index_paths()[0]
        write_file(path, image.size, {40 + 4 * SLOTS + 20: oracles.packed(-5, 4)})
        for count in (0, 1, 1, 1, 1, 1):
            growing.add(*[True] * count)
            write_file(path, image.size, {40 + 4 * SLOTS + 20: oracles.packed(-5, 4)})
            growing.look()
        assert looks.call_count == 2

    def test_a_header_that_lies_is_not_followed_out_of_the_file(self, tmp_path) -> None:
        growing = Growing(tmp_path, index_entries=20)
        growing.add(True, True)
        growing.look()
        image, path = growing.writer.index.files[0], growing.writer.index_paths()[0]
        write_file(path, image.size, {36: oracles.packed(2**31 - 1, 4)})
        assert grown_shape(growing.file, growing.log, True) is None


T0 = 1_700_000_000_000
G2_INDEX = {"g2-hosts": (50, 60), "g2-queues": (97, 150), "g2-queues-5.5.1": (97, 150), "g2-ext": (31, 400)}


def file_of(path, image, size=None, changes=None):
    path.unlink(missing_ok=True)  # of another example
    write_index_file(path, image)
    write_file(path, image.size if size is None else size, changes or {})
    return MappedFile.open(path)


@settings(max_examples=examples(8), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(slots=st.integers(1, 200),
       keys=st.lists(st.sampled_from([*KEYS, *[f"k{number}" for number in range(40)]]), min_size=1, max_size=60),
       spare=st.integers(1, 30), hints=st.lists(st.integers(1, 200), max_size=3))  # fmt: skip
@example(slots=41, keys=["k36"], spare=1, hints=[1])
def test_counts_of_any_size_are_found_whatever_the_neighbours_have(tmp_path, slots, keys, spare, hints) -> None:
    image = oracles.index_image(keys, slots, len(keys) + spare)
    file = file_of(tmp_path / "file", image)
    shape = determine_shape(file, hints)
    assert (shape.slots, shape.entries) == (slots, len(keys))
    assert (shape.minimum, shape.maximum, shape.ascending) == (100, 100 * len(keys), True)
    assert shape.gaps == ()
    for hashed in (oracles.index_hash(f"T#{key}") for key in keys):
        chain = IndexFile(file, shape).chain(hashed)
        found = [entry.physical_offset for _, entry in chain if entry.key_hash == hashed]
        assert found == oracles.walk_chain(bytes(file.view), slots, hashed)


def test_more_gaps_than_are_kept_make_one_of_the_rest(tmp_path) -> None:
    image = IndexImage(7, 200)
    for number in range(100):
        image.put(f"T#{number}", 2 * GAP_BYTES * number, T0)
    shape = determine_shape(file_of(tmp_path / "file", image))
    assert len(shape.gaps) == MAXIMUM_GAPS + 1
    assert shape.gaps[-1] == (2 * GAP_BYTES * MAXIMUM_GAPS, 2 * GAP_BYTES * 99)


def test_a_sparse_file_that_would_have_more_slots_than_a_java_int_has_no_shape(tmp_path) -> None:
    path = tmp_path / "index"
    size = 40 + 4 * (2**31 + 8) + 20 * 3
    with path.open("wb") as file:
        file.write(HEADER.pack(1, 2, 3, 4, 1, 2))
        file.truncate(size)
        file.seek(size - 21)
        file.write(b"\1")
    assert determine_shape(MappedFile.open(path), [2**31 + 8]) is None


@pytest.mark.parametrize("name", ["store", *G2_INDEX])
def test_counts_of_the_recorded_files_are_found_without_a_hint(tmp_path, name) -> None:
    root = unpack(name, tmp_path) if name == "store" else unpack("store", tmp_path, archives=GOLDEN / "g2" / name)
    check(sorted((root / "index").iterdir()), *G2_INDEX.get(name, (97, 150)))


def check(paths, slots, entries) -> None:
    for number, path in enumerate(paths):
        file = MappedFile.open(path)
        shape = determine_shape(file)
        assert shape.slots == slots
        assert shape.entries == entries - 1 or number == len(paths) - 1
        assert shape.entries == read_header(file).index_count - 1
        assert file.size == 40 + 4 * slots + 20 * entries
        content = np.frombuffer(file.view, dtype=np.uint8).tobytes()
        assert oracles.first_bad_entry(content, slots, shape.entries) == 0


SLOTS, ENTRIES = 13, 40


def image_of(count: int, slots: int = SLOTS, entries: int = ENTRIES) -> oracles.IndexImage:
    image = oracles.IndexImage(slots, entries)
    for number in range(count):
        image.put(f"T#k{number % 17}{number}", 100 * (number + 1), T0 + 1000 * number)
    return image


def copy_of(path, content):
    path.write_bytes(content)
    return IndexCopy(path)


def changed(content: bytes, *changes: tuple[int, bytes]) -> bytes:
    data = bytearray(content)
    for position, new in changes:
        data[position : position + len(new)] = new
    return bytes(data)


def entry_place(number: int, field: int = 0, slots: int = SLOTS) -> int:
    return 40 + 4 * slots + 20 * number + field


class TestBytes:
    def test_header_slots_and_entries_are_those_of_the_file(self, tmp_path) -> None:
        image = image_of(20)
        copy = copy_of(tmp_path / "file", image.to_bytes())
        assert (copy.size, copy.header.index_count, copy.header.end_physical_offset) == (image.size, 21, 2000)
        assert copy.slots(SLOTS).tolist() == [image.slots.get(slot, 0) for slot in range(SLOTS)]
        entries = copy.entries(SLOTS, 20)
        assert [tuple(entry) for entry in entries.tolist()] == [(0, 0, 0, 0), *image.entries]

    def test_the_first_and_the_last_byte_are_found_wherever_they_are(self, tmp_path) -> None:
        write_file(tmp_path / "file", 1 << 18, dict.fromkeys((5, 70_000, 200_001), b"x"))
        copy = IndexCopy(tmp_path / "file")
        starts = (0, 6, 4096, 70_001, 131_072, 200_002)
        assert copy.last_data == 200_001
        assert [copy.first_data(start, 1 << 18) for start in starts] == [5, 70_000, 70_000, 200_001, 200_001, -1]

    def test_a_file_longer_than_any_broker_maps_is_refused_unread(self, tmp_path) -> None:
        write_file(tmp_path / "file", 1 << 31, {})
        with pytest.raises(StoreError, match="at most 2147483647"):
            IndexCopy(tmp_path / "file")

    def test_a_file_that_is_cut_while_it_is_read_is_told(self, tmp_path, monkeypatch) -> None:
        path = tmp_path / "file"
        path.write_bytes(b"x" * 10_000)
        extents = index_copy.data_extents

        def cut(descriptor, size):
            found = list(extents(descriptor, size))
            os.truncate(path, 5_000)
            return found

        monkeypatch.setattr(index_copy, "data_extents", cut)
        with pytest.raises(StoreError, match=r"10000.*5000"):
            IndexCopy(path)

    def test_a_file_system_that_knows_no_holes_has_one_extent(self, tmp_path, monkeypatch) -> None:
        (tmp_path / "file").write_bytes(b"x" * 100)
        with (tmp_path / "file").open("rb") as file:
            monkeypatch.setattr(os, "lseek", Mock(side_effect=OSError(22, "not here")))
            assert list(data_extents(file.fileno(), 100)) == [(0, 100)]


class TestCountSlots:
    @settings(max_examples=examples(8), suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=30), slots=st.integers(1, 40), told=st.booleans())
    def test_a_sound_file_has_the_count_that_is_told_or_one_that_explains_it(self, tmp_path, keys, slots, told) -> None:
        image = oracles.IndexImage(slots, len(keys) + 1)
        for number, key in enumerate(keys):
            image.put(f"T#{key}", 100 * number, T0)
        copy = copy_of(tmp_path / "file", image.to_bytes())
        found = count_slots(copy, [slots] if told else [])
        assert found == slots or not told
        assert oracles.first_bad_entry(image.to_bytes(), found, (copy.last_data - 40 - 4 * found) // 20) == 0

    def test_a_damaged_file_has_the_count_that_most_of_it_agrees_with(self, tmp_path) -> None:
        damages = {
            "a pointer": [(entry_place(9, 16), b"\x00\x00\x00\x26")],
            "a hash": [(entry_place(3), b"\x12\x34\x56\x78")],
            "slots": [(40 + 4 * n, bytes(4)) for n in range(6)],
            "count and pointer": [(36, b"\x7f\xff\xff\xff"), (entry_place(20, 16), bytes(4))],
            "five entries": [(entry_place(5), bytes(100))],
        }
        for kind, changes in damages.items():
            copy = copy_of(tmp_path / "file", changed(image_of(39).to_bytes(), *changes))
            assert [count_slots(copy, told) for told in ([], [97, SLOTS])] == [SLOTS, SLOTS], kind

    def test_bytes_that_no_count_explains_have_none(self, tmp_path) -> None:
        noise = np.random.default_rng(3).integers(1, 255, 900, dtype=np.uint8).tobytes()
        assert count_slots(copy_of(tmp_path / "file", noise), [SLOTS]) == 0


@pytest.mark.parametrize(("said", "grows", "entries"), [
    (0, False, 20), (25, False, 20), (-1, False, 20), (2**31 - 1, False, 20), (21, True, 20), (1, True, 0),
    (30, True, 20),
])  # fmt: skip
def test_a_header_that_lies_is_outvoted_and_one_of_a_file_that_grows_is_not(tmp_path, said, grows, entries) -> None:
    """One that grows has the entries that its header counted first, unless there are fewer bytes."""
    content = changed(image_of(20).to_bytes(), (36, oracles.packed(said, 4)))
    counts = count_entries(copy_of(tmp_path / "file", content), SLOTS, grows=grows)
    assert counts == IndexCounts(SLOTS, ENTRIES, entries)


def test_the_mark_of_a_compacted_file_is_read_with_it(tmp_path) -> None:
    content = bytearray(image_of(20).to_bytes())
    assert copy_of(tmp_path / "file", bytes(content)).mark(SLOTS) is None
    write_mark(content, SLOTS, 15, complete=True, tags=False)
    copy = copy_of(tmp_path / "file", bytes(content))
    assert copy.mark(SLOTS) == IndexMark(15, True, False)
    assert copy.is_marked_truly(SLOTS)
    content[entry_place(15, 11)] ^= 1
    copy = copy_of(tmp_path / "file", bytes(content))
    assert copy.mark(SLOTS) is not None
    assert not copy.is_marked_truly(SLOTS)


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
            "slots": [0, 2**62, 2400, None, "x", float("inf"), float("nan")], "entries": [-1, 10**6, 2**63],
            "minimum": [[], 5000], "maximum": [2**63],
            "gaps": [5, [[1]], [["a", "b"]], [[1, 2**63]], [[20, 10]], [[30, 40], [10, 20]], [[-1, 3]], [[10, 4001]]],
            "compacted": [-1, 151, None], "segments": [7, [[1, 2]], [5]],
        }  # fmt: skip
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
