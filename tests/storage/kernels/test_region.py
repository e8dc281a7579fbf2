"""What kernels read is held as long as they may read it."""

import gc
import mmap
import weakref

import numpy as np
import pytest

from storage.kernels.region import Region


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_region_is_the_bytes_of_any_buffer(kind: type) -> None:
    region = Region(kind(b"RocketLens"))
    assert bytes(region) == b"RocketLens"
    assert (len(region), region.size) == (10, 10)


def test_what_is_no_buffer_or_not_in_one_piece_is_refused() -> None:
    with pytest.raises(TypeError):
        Region("text")  # type: ignore[arg-type]
    with pytest.raises((BufferError, ValueError)):
        Region(memoryview(bytes(10))[::2])


def test_a_buffer_is_held_until_the_region_goes() -> None:
    memory = mmap.mmap(-1, mmap.PAGESIZE)
    region = Region(memory)
    with pytest.raises(BufferError):
        memory.close()
    array = np.zeros(10, np.uint8)
    alive, other = weakref.ref(array), Region(array)
    del array
    gc.collect()
    assert alive() is not None
    del other, region
    gc.collect()
    assert alive() is None
    memory.close()
