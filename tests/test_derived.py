"""What build_backend/derived.py makes of other sources: stubs for type checkers, and the layout of records."""

import ast
from pathlib import Path

import pytest

from build_backend import derived

ROOT = Path(__file__).parent.parent

SOURCE = '''"""A kernel."""

from storage.kernels.region cimport MAXIMUM, Region, require


LIMIT: Final[int] = 7


@cython.final
cdef class Walk:
    """Where it ended."""

    cdef readonly int64_t position  # Where.
    cdef readonly object table  # `npt.NDArray[np.int32]`: What.
    cdef int hidden

    def __cinit__(
        self, bytes topic not None, str tag, *, times: tuple[int, int],
        names: Iterable[str] = (LIMIT,),
    ) -> None:
        """Begin."""

    def __dealloc__(self):
        pass

    @property
    def is_full(self) -> bool:
        return True


cdef class Open:
    def __getbuffer__(self, Py_buffer *buffer, int flags):
        pass

cdef inline int inner(int n) noexcept nogil:
    return n

def walk(Region region not None, int64_t stop, Walk sums=None, asked: protocol.question.Kind = None) -> list[int]:
    """Walk. def no(a) -> int:"""
    text = """
def no(self) -> int:
"""
'''
DECLARED = """cpdef enum:
    FIRST = 1 << 4  # one
    SECOND

cdef enum:
    INNER = 3
"""
STUB = """# From planted.pyx, by build_backend/derived.py.
from collections.abc import Iterable
from typing import Final, final
from typing_extensions import Buffer, disjoint_base
import numpy as np
import numpy.typing as npt
import protocol.question
from storage.kernels.region import Region
FIRST: Final = 1 << 4
SECOND: Final[int]
LIMIT: Final[int]
def walk(region: Region, stop: int, sums: Walk | None = None, asked: protocol.question.Kind = None) -> list[int]: ...
@final
class Walk:
    @property
    def position(self) -> int: ...
    @property
    def table(self) -> npt.NDArray[np.int32]: ...
    def __new__(cls, topic: bytes, tag: str | None, *, times: tuple[int, int], names: Iterable[str] = ...) -> Walk: ...
    @property
    def is_full(self) -> bool: ...
@disjoint_base
class Open(Buffer):
    pass
"""


def test_a_stub_says_what_a_kernel_offers_to_python(tmp_path: Path) -> None:
    source = tmp_path / "planted.pyx"
    source.write_text(SOURCE)
    source.with_suffix(".pxd").write_text(DECLARED)
    assert derived.stub(source) == STUB
    ast.parse(STUB)


def test_what_is_derived_is_that_of_the_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    made = derived.derived()
    assert len(made) > 20
    assert {path for path, text in made.items() if path.read_text() != text} == set(), "make .dev writes them"
