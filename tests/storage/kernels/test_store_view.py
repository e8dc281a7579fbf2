"""What kernels see of a store and its files: pages in memory, segments, records, and files cut under their map."""

import errno
import mmap
import os
import shutil
import subprocess
import sys
import tempfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles
import storage.kernels
from kernel_memory import HeldFile, KernelStore, record_at
from storage.files.mapped_file import MappedFile, lacks_means
from storage.kernels import records as codes
from storage.kernels.file_map import FileMap
from storage.kernels.records import crc32
from storage.kernels.store_view import PROBE_BYTES, IndexFilesView, LogView, RunsView, StoreView, stay_alike

TICK = 1000


@st.composite
def segment_lists(draw: st.DrawFn) -> list[tuple[int, bytes]]:
    segments, base = [], draw(st.integers(0, 2**62))
    for _ in range(draw(st.integers(0, 6))):
        size = draw(st.integers(1, 40))
        segments.append((base, bytes(size)))
        base += size + draw(st.sampled_from([0, 0, 0, 7, 1000]))
    return segments


def segment_of(segments: list[tuple[int, bytes]], offset: int) -> int:
    numbers = [number for number, (base, data) in enumerate(segments) if base <= offset < base + len(data)]
    return numbers[0] if numbers else -1


def test_what_is_in_use_is_asked_for_again_after_sixteen_seconds(disk_path) -> None:
    path = disk_path / "file"
    path.write_bytes(bytes(PROBE_BYTES))
    descriptor = os.open(path, os.O_RDONLY)
    file = HeldFile(bytes(PROBE_BYTES), descriptor)
    assert file.is_hot(0, 10, 1000)
    os.close(descriptor)  # from now on, a new probe says that nothing is in memory
    assert [file.is_hot(0, 10, tick) for tick in range(1000, 1017)] == [True] * 17
    assert not file.is_hot(0, 10, 1017)


def test_places_stay_alike_until_one_of_them_says_something_else(tmp_path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a mark, and at the end nothing\0\0\0")
    file = MappedFile.open(path)
    places: list[tuple[MappedFile, int, int, bytes]] = [
        (file, 0, 6, b"a mark"), (file, 30, 8, bytes(3)), (file, 99, 8, b""),
    ]  # fmt: skip
    assert stay_alike(places, 0, 1)
    assert stay_alike(places, 0.0001, 3)
    for changed in (b"A mark", b"a mark, and at the end nothing\0\1\0", b"a mark, and at the end nothing\0\0"):
        path.write_bytes(changed)
        assert not stay_alike(places, 0, 1)
    assert stay_alike([], 0, 1)
    for refused in ([places[0]] * 5, [(file, 0, 65, b"")], [(file, 0, -1, b"")]):
        with pytest.raises(ValueError, match="bytes of place"):
            stay_alike(refused, 0, 1)


@given(segment_lists(), st.integers(-5, 60), st.data())
def test_any_offset_is_found_where_looking_at_each_segment_finds_it(segments, distance, data) -> None:
    store = KernelStore(segments)
    base = data.draw(st.sampled_from([base for base, _ in segments])) if segments else 0
    assert store.log.find_segment(base + distance) == segment_of(segments, base + distance)


@given(st.integers(1, 5), st.integers(1, 50), st.integers(0, 2**62), st.integers(-60, 300))
def test_segments_of_one_size_are_found_by_division(count: int, size: int, base: int, distance: int) -> None:
    segments = [(base + number * size, bytes(size)) for number in range(count)]
    assert KernelStore(segments).log.find_segment(base + distance) == segment_of(segments, base + distance)


@given(st.data())
def test_a_record_is_found_exactly_where_the_oracle_reads_one(data: st.DataObject) -> None:
    base = 1 << 40
    whole = bytearray()
    for _ in range(3):
        whole += record_at(base + len(whole), keys="a", body=data.draw(st.binary(max_size=9)))
    for _ in range(data.draw(st.integers(0, 2))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    store = KernelStore([(base - 100, bytes(100)), (base, bytes(whole))])
    for position in range(len(whole)):
        expected = oracles.read_record(bytes(whole), position, base + position)
        found = store.log.record_at(base + position, 0)
        assert max((found if isinstance(found, int) else len(found)), 0) == (expected.total_size if expected else 0)
        if not isinstance(found, int):
            assert found == whole[position : position + len(found)]


def test_pages_that_are_not_in_memory_are_not_read() -> None:
    data = record_at(0, body=bytes(200_000))
    with tempfile.TemporaryFile() as short:  # as short as it is, every probe comes back short, as over cold pages
        store = KernelStore([(0, data)], descriptor=short.fileno())
        assert not store.segments[0].is_hot(0, 64, TICK)
        assert (store.log.record_at(0, TICK), store.log.record_at(0, 0)) == (codes.COLD, data)


def test_a_file_just_written_is_hot_and_remembered(tmp_path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(3 * PROBE_BYTES + 5))
    file = MappedFile.open(path)
    assert file.is_hot(0, file.size, 1000)
    heat, can_be_asked = file.heat, file.descriptor >= 0
    del file  # Under sanitizers a kernel writes to a copy, which is copied back when it is let go.
    if can_be_asked:
        assert heat.tolist() == [1000] * 4


def test_a_short_read_is_cold(tmp_path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(100))
    descriptor = os.open(path, os.O_RDONLY)
    # The file is shorter than the map is said to be, so that the probe comes back short, as over cold pages.
    file = HeldFile(bytes(2 * PROBE_BYTES), descriptor)
    try:
        assert not file.is_hot(0, 10, 1000)
        assert not file.is_hot(0, 10_000, 1000)
    finally:
        os.close(descriptor)
    assert not file.heat.any()


def test_what_was_found_hot_is_not_asked_for_again_within_a_second() -> None:
    closed = os.open("/dev/null", os.O_RDONLY)
    os.close(closed)
    file = HeldFile(bytes(10), closed)
    file.heat[0] = 999
    assert file.is_hot(0, 10, 1000)
    assert not file.is_hot(0, 10, 1001)


@pytest.mark.parametrize("size", [9, 10])
def test_bytes_behind_the_valid_part_are_in_no_segment(size: int) -> None:
    log = KernelStore([(0, bytes(size)), (10, bytes(10))], valid=[size, 4]).log
    assert (log.find_segment(13), log.find_segment(14), log.find_segment(2**63 - 1)) == (1, -1, -1)
    grown = log.grown(5)
    assert (grown.find_segment(14), log.find_segment(14), len(grown)) == (1, -1, 2)


def test_parts_live_as_long_as_what_is_made_of_them() -> None:
    data = record_at(0)
    view = StoreView(LogView([(0, HeldFile(data), len(data))]), IndexFilesView(), RunsView())
    view = view.with_runs(RunsView([(np.array([7], np.int32), np.array([0], np.int64))]))
    assert view.log.record_at(0, 0) == data


PAGE = mmap.PAGESIZE
SIZE = 64 * PAGE + 100
DATA = bytes(n * n % 251 for n in range(SIZE))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(DATA)
    return path


@pytest.fixture
def descriptor(path):
    descriptor = os.open(path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


@pytest.mark.parametrize("kept", [0, 10 * PAGE + 7])
def test_what_was_cut_away_reads_as_zeros_and_the_map_says_so(path: Path, descriptor: int, kept: int) -> None:
    pages = FileMap(descriptor, SIZE)
    pages.populate(0, SIZE)
    os.truncate(path, kept)
    assert crc32(pages) == zlib.crc32(DATA[:kept].ljust(SIZE, b"\0"))
    assert pages.is_cut


COUNTING = """
import os, sys
from storage.kernels.file_map import FileMap, count_cuts
from storage.kernels.records import crc32
for is_walked in (True, False, True):
    with open(sys.argv[1], "r+b") as file:
        pages = FileMap(file.fileno(), os.path.getsize(sys.argv[1]), is_walked=is_walked)
        os.truncate(file.fileno(), 4096)
        crc32(pages)
        print(pages.is_cut, count_cuts())
        os.truncate(file.fileno(), pages.size)
"""


def run(code, path, *arguments):
    command = [sys.executable, "-c", code, str(path), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_only_cuts_of_maps_that_nobody_walks_through_are_counted(path: Path) -> None:
    """In a process of its own: what it counts would be taken for a cut of the stores that are open in this one."""
    assert run(COUNTING, path).stdout.split() == ["True", "0", "True", "1", "True", "1"]


def test_many_threads_may_meet_the_end_at_once(path: Path, descriptor: int) -> None:
    pages = FileMap(descriptor, SIZE)
    os.truncate(path, 2 * PAGE)
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(crc32, [pages] * 8)) == {zlib.crc32(DATA[: 2 * PAGE].ljust(SIZE, b"\0"))}


LOOKS = """
#include <stdint.h>
#include <stdio.h>

static void take_turn(void);
static int looks, turn_behind;

static uintptr_t look(uintptr_t found)
{
    if (++looks == turn_behind)
        take_turn();
    return found;
}

#define __atomic_load_n(place, order) look(*(volatile __typeof__(*(place)) *)(place))
#include "file_map.h"

/* What another thread does between two looks at the table: a map far below comes in the place of one far above. */
static void take_turn(void)
{
    turn_behind = 0;
    release_map(0);
    guard_map((void *)0x10000, 4096, 0);
}

int main(void)
{
    uintptr_t stop;
    for (int behind = 1; behind < 8; behind++) {
        guard_map((void *)0x70000, 4096, 0);
        looks = 0, turn_behind = behind;
        if (guarded_map_at(0x40000, &stop) != NULL)
            return printf("found behind look %d", behind), 1;
        turn_behind = 0;
        release_map(0);
    }
    return 0;
}
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a compiler")
def test_a_map_made_while_the_handler_looks_is_not_taken_for_another(tmp_path: Path) -> None:
    (tmp_path / "looks.c").write_text(LOOKS)
    kernels = Path(storage.kernels.__file__).parent
    command = ["cc", "-D_GNU_SOURCE", "-w", f"-I{kernels}", "-o", str(tmp_path / "looks"), str(tmp_path / "looks.c")]
    subprocess.run(command, check=True)
    assert subprocess.run([tmp_path / "looks"], stdout=subprocess.PIPE, check=False).stdout == b""


SENT = """
import os, signal, sys
from storage.files.mapped_file import lacks_means
from storage.kernels.file_map import FileMap
from storage.kernels.records import crc32
path, act = sys.argv[1:]
had = []
signal.signal(signal.SIGBUS, signal.SIG_IGN if act == "ignored" else lambda *_: had.append(1))
descriptor = os.open(path, os.O_RDONLY)
pages = FileMap(descriptor, os.fstat(descriptor).st_size)
for _ in range(2):
    os.kill(os.getpid(), signal.SIGBUS)
os.truncate(path, 4096)
print(crc32(pages), pages.is_cut, len(had))
"""


@pytest.mark.parametrize(("act", "had"), [("handled", 2), ("ignored", 0)])
def test_maps_stay_guarded_behind_a_signal_that_was_sent(path: Path, act: str, had: int) -> None:
    assert run(SENT, path, act).stdout == f"{zlib.crc32(DATA[:4096].ljust(SIZE, bytes(1)))} True {had}\n"


OTHERS = """
import faulthandler, mmap, os, signal, sys
from storage.kernels import file_map
from storage.files.mapped_file import lacks_means
from storage.kernels.file_map import FileMap
from storage.kernels.records import crc32
path, act = sys.argv[1:]
descriptor = os.open(path, os.O_RDONLY)
size = os.fstat(descriptor).st_size
if act == "faulthandler before":
    faulthandler.enable()
pages = FileMap(descriptor, size)
if act == "faulthandler behind":
    faulthandler.enable()
    pages = [pages, FileMap(descriptor, size)][1]
other = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
os.truncate(path, 4096)
print(crc32(pages), pages.is_cut, flush=True)
if act == "a signal that was sent":
    os.kill(os.getpid(), signal.SIGBUS)
crc32(other)
print("still here")
"""


@pytest.mark.parametrize("act", ["a signal that was sent", "faulthandler before", "faulthandler behind"])
def test_a_signal_of_another_map_ends_the_process_as_ever(path: Path, act: str) -> None:
    ended = run(OTHERS, path, act)
    assert (ended.stdout, ended.returncode) == (f"{zlib.crc32(DATA[:4096].ljust(SIZE, bytes(1)))} True\n", -7)
    assert ("Bus error" in ended.stderr) == act.startswith("faulthandler")


def test_what_was_populated_and_dropped_is_there_again_and_only_the_map_looked_at_cut(descriptor, path) -> None:
    # What was populated and dropped is there again.
    pages = FileMap(descriptor, SIZE)
    for start, stop in ((0, SIZE), (5, 6), (PAGE - 1, 3 * PAGE + 1), (SIZE, SIZE)):
        pages.populate(start, stop)
        pages.drop(start, stop)
        assert crc32(pages) == zlib.crc32(DATA)
    # Only the map that was looked at is cut.
    whole, short = FileMap(descriptor, SIZE), FileMap(descriptor, PAGE)
    os.truncate(path, 2 * PAGE)
    assert crc32(short) == zlib.crc32(DATA[:PAGE])
    crc32(whole)
    assert (whole.is_cut, short.is_cut) == (True, False)


def test_what_cannot_be_mapped_populated_or_guarded_is_refused_and_room_comes_back(descriptor, path) -> None:
    # More maps than can be guarded are refused and room comes back.
    held: list[FileMap] = []
    with pytest.raises(OSError, match="cannot be guarded: as many files as can be") as refused:
        held.extend(FileMap(descriptor, SIZE) for _ in range(32_769))
    assert lacks_means(refused.value)
    assert refused.value.errno == errno.EMFILE
    held.clear()
    assert bytes(FileMap(descriptor, SIZE)) == DATA
    # What cannot be mapped is refused.
    with pytest.raises(OSError, match="cannot be mapped"):
        FileMap(descriptor, 0)
    with pytest.raises(OSError, match="cannot be mapped"):
        FileMap(-1, PAGE)
    # Pages behind the end cannot be populated.
    pages = FileMap(descriptor, SIZE)
    os.truncate(path, PAGE)
    with pytest.raises(OSError, match="pages cannot be read"):
        pages.populate(0, SIZE)
    assert not pages.is_cut
