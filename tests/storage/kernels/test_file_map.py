"""Maps whose files are cut while somebody looks at them."""

import errno
import mmap
import os
import shutil
import subprocess
import sys
import threading
import zlib
from pathlib import Path

import pytest

import storage.kernels
from storage.files.mapped_file import lacks_means
from storage.kernels.file_map import FileMap
from storage.kernels.records import crc32

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


def test_only_cuts_of_maps_that_nobody_walks_through_are_counted(path: Path) -> None:
    """In a process of its own: what it counts would be taken for a cut of the stores that are open in this one."""
    command = [sys.executable, "-c", COUNTING, str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.split() == ["True", "0", "True", "1", "True", "1"]


def test_many_threads_may_meet_the_end_at_once(path: Path, descriptor: int) -> None:
    pages = FileMap(descriptor, SIZE)
    os.truncate(path, 2 * PAGE)
    expected, found = zlib.crc32(DATA[: 2 * PAGE].ljust(SIZE, b"\0")), []
    threads = [threading.Thread(target=lambda: found.append(crc32(pages))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 8


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
    command = [sys.executable, "-c", SENT, str(path), act]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.stdout == f"{zlib.crc32(DATA[:4096].ljust(SIZE, bytes(1)))} True {had}\n"


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
    command = [sys.executable, "-c", OTHERS, str(path), act]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.stdout == f"{zlib.crc32(DATA[:4096].ljust(SIZE, bytes(1)))} True\n"
    assert ended.returncode == -7
    assert ("Bus error" in ended.stderr) == act.startswith("faulthandler")


GUARDED = 32768


def test_what_was_populated_and_dropped_is_there_again(descriptor: int) -> None:
    pages = FileMap(descriptor, SIZE)
    for start, stop in ((0, SIZE), (5, 6), (PAGE - 1, 3 * PAGE + 1), (SIZE, SIZE)):
        pages.populate(start, stop)
        pages.drop(start, stop)
        assert crc32(pages) == zlib.crc32(DATA)


def test_only_the_map_that_was_looked_at_is_cut(path: Path, descriptor: int) -> None:
    whole, short = FileMap(descriptor, SIZE), FileMap(descriptor, PAGE)
    os.truncate(path, 2 * PAGE)
    assert crc32(short) == zlib.crc32(DATA[:PAGE])
    crc32(whole)
    assert (whole.is_cut, short.is_cut) == (True, False)


def test_pages_behind_the_end_cannot_be_populated(path: Path, descriptor: int) -> None:
    pages = FileMap(descriptor, SIZE)
    os.truncate(path, PAGE)
    with pytest.raises(OSError, match="pages cannot be read"):
        pages.populate(0, SIZE)
    assert not pages.is_cut


def test_more_maps_than_can_be_guarded_are_refused_and_room_comes_back(descriptor: int) -> None:
    held: list[FileMap] = []
    with pytest.raises(OSError, match="cannot be guarded: as many files as can be") as refused:
        held.extend(FileMap(descriptor, SIZE) for _ in range(GUARDED + 1))
    assert lacks_means(refused.value)
    assert refused.value.errno == errno.EMFILE
    held.clear()
    assert bytes(FileMap(descriptor, SIZE)) == DATA


def test_what_cannot_be_mapped_is_refused(descriptor: int) -> None:
    with pytest.raises(OSError, match="cannot be mapped"):
        FileMap(descriptor, 0)
    with pytest.raises(OSError, match="cannot be mapped"):
        FileMap(-1, PAGE)
