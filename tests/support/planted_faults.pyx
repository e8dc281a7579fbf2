"""Faults that sanitizers must see (tests/test_sanitizers.py); compiled for them alone."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from storage.kernels.records cimport Text, text_of
from storage.kernels.region cimport Column, Region, Room


def read_region(Region region not None, int64_t position):
    return region.data[position]


def read_text(bytes content not None, int64_t position):
    cdef Text text = text_of(content)
    return text.start[position]


def read_column(array, int64_t number):
    return (<const int32_t *>Column(array, sizeof(int32_t)).items)[number]


def write_room(array, int64_t number):
    cdef Room room = Room(array, sizeof(int32_t))
    (<int32_t *>room.items)[number] = 7


def add(int32_t left, int32_t right):
    return <int32_t>(left + right)


def load_aligned(Region region not None, int64_t position):
    return (<const int32_t *>(region.data + position))[0]
