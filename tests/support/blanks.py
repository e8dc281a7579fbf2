"""Segments in which BLANKs of any size stand at any place, whole or cut, with others beside them or alone."""

from dataclasses import dataclass, field

from hypothesis import strategies as st

from kernel_memory import record_at
from oracles import BLANK_MAGIC, Record, is_closing_blank, packed, read_record, split_keys

LENGTH = 4096

MAGIC = BLANK_MAGIC.to_bytes(4, "big")
START_TIMESTAMP = 1_700_000_000_000


def sound_records(data: bytes, base_offset: int, length: int) -> tuple[list[Record], list[tuple[int, int]]]:
    """All intact records of a segment of `length` bytes up to the BLANK that closes it, or to where it just ends.

    Also the physical offsets [start, stop) of what is neither, between them and behind the last one.
    """
    records, damage, position = [], list[tuple[int, int]](), 0
    while position + 8 <= len(data) and not is_closing_blank(data, position, length):
        record = read_record(data, position, base_offset + position)
        if record is not None:
            records.append(record)
            position += record.total_size
            continue
        starts = range(position + 1, len(data))
        following = next((at for at in starts if read_record(data, at, base_offset + at)), len(data))
        damage.append((base_offset + position, base_offset + following))
        position = following
    return records, damage


@dataclass(frozen=True)
class Blanked:
    base: int
    data: bytes
    has_previous: bool
    has_next: bool
    records: list[Record] = field(init=False)
    """All intact ones, and in `damage` where there is none: [start, stop) by physical offset."""
    damage: list[tuple[int, int]] = field(init=False)

    def __post_init__(self) -> None:
        records, damage = sound_records(self.data, self.base, LENGTH)
        if damage and damage[-1][1] == self.base + len(self.data) and not self.has_next:  # that is where it ends
            damage.pop()
        object.__setattr__(self, "records", records)
        object.__setattr__(self, "damage", damage)

    @property
    def offsets(self) -> list[int]:
        return [record.physical_offset for record in self.records]

    @property
    def keys(self) -> list[str]:
        return [key for record in self.records for key in split_keys(record.properties["KEYS"])]

    def write(self, directory):
        directory.mkdir(parents=True, exist_ok=True)
        if self.has_previous:
            neighbour(directory, self.base - LENGTH, 0)
        if self.has_next:
            neighbour(directory, self.base + LENGTH, 10_000_000)
        path = directory / f"{self.base:020d}"
        path.write_bytes(self.data)
        return path


def neighbour(directory, base, later) -> None:
    """A sound segment of one record, stored at the start of the time or some ms later."""
    stored = START_TIMESTAMP + later
    record = record_at(base, keys=f"at{base}", store_timestamp=stored, topic_bytes=b"Neighbour", queue_offset=0)
    left = LENGTH - len(record)
    (directory / f"{base:020d}").write_bytes((record + packed(left, 4) + MAGIC).ljust(LENGTH, b"\0"))


@st.composite
def blanked_segments(draw: st.DrawFn) -> Blanked:
    """Some records, in place of some heads BLANKs of any size, and at the end the right one, another, or none."""
    has_previous, has_next = draw(st.booleans()), draw(st.booleans())
    base = 3 * LENGTH
    data = bytearray()
    count = draw(st.integers(1, 9))
    planted = draw(st.sets(st.integers(0, count - 1), max_size=3))
    for number in range(count):
        changes = {"keys": f"k{number}", "queue_offset": number, "store_timestamp": START_TIMESTAMP + 1 + number}
        record = bytearray(record_at(base + len(data), body=b"x" * draw(st.integers(0, 120)), **changes))
        if number in planted:
            record[:8] = draw(_sizes(len(data), len(record))) + MAGIC
        data += record
    if draw(st.booleans()):
        data += packed(LENGTH - len(data), 4) + MAGIC + draw(st.sampled_from([b"", b"stale" * 20]))
    elif draw(st.booleans()):
        data += draw(_sizes(len(data), 100)) + MAGIC
    is_cut = (has_previous or has_next) and draw(st.booleans())
    return Blanked(base, bytes(data) if is_cut else bytes(data).ljust(LENGTH, b"\0"), has_previous, has_next)


def _sizes(position: int, size: int) -> st.SearchStrategy[bytes]:
    """Sizes of BLANKs that are believable, and of such that are not; seldom the right one."""
    left = LENGTH - position
    said = [left, left - 1, left + 1, left + LENGTH, size, size + 8, 0, 8, 91, -1, -(2**31), 2**31 - 1]
    return st.sampled_from(said).map(lambda number: packed(number, 4))
