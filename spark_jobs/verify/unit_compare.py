"""Units of a queue's files in their places, field by field beside what the log says they should be."""

from collections import Counter
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from spark_jobs.verify.ext_units import ADDRESS, ExtUnits
from spark_jobs.verify.findings import EXT_UNIT, UNIT, Discrepancies, FoundAt
from spark_jobs.verify.unit_files import UnitFiles, Units
from storage.queue.consume_queue_ext import LARGEST_ADDRESS

LARGEST_DELIVERY: Final = 1 << 62

Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]


class UnitComparison:
    """Compares the units of one queue. `extension`: where addresses in tags codes lead, None for queues without.

    `is_schedule`: tags codes are delivery times, which follow from the delay levels of the broker's configuration.
    """

    def __init__(
        self, files: UnitFiles, extension: ExtUnits | None, findings: Discrepancies, *, is_schedule: bool = False
    ) -> None:
        """Nothing is compared yet."""
        self._files, self._extension, self._findings = files, extension, findings
        self._is_schedule = is_schedule
        self._compared = 0
        self._delays: Counter[int] = Counter()
        self._delayed: list[tuple[int, int, int, int]] = []
        self.other_delays = 0
        self.ext_units = 0

    def compare(self, place: int, expected: Units, found: Units, timestamps: Numbers | None) -> None:
        """Compare units that stand from a place on with what they should be."""
        self._compared += len(expected)
        if expected.tobytes() == found.tobytes():
            return
        zeros = ~found.view(np.uint8).reshape(len(found), -1).any(axis=1)
        self._say_zeros(place, expected, np.flatnonzero(zeros))
        for field in found.dtype.names or ():
            wrong = (expected[field] != found[field]) & ~zeros
            if field == "tags_code":
                wrong &= ~self._is_excused(place, expected, found, timestamps)
            for i in np.flatnonzero(wrong).tolist():
                self._say(place + i, field, expected[i], int(expected[field][i]), int(found[field][i]))

    def finish(self) -> None:
        """All units have been seen: delivery times that differ alike follow from other delay levels."""
        for place, offset, expected, found in self._delayed:
            if self._delays[found - expected] >= 2 or self._compared == 1:
                continue
            path, position = self._where(place, "tags_code")
            self._findings.add(UNIT, FoundAt(path, f"unit {place} tags_code", position, offset), expected, found)
        self.other_delays = sum(count for count in self._delays.values() if count >= 2 or self._compared == 1)

    def _is_excused(self, place: int, expected: Units, found: Units, timestamps: Numbers | None) -> Flags:
        """Which tags codes are judged otherwise: addresses of extension units, and delivery times."""
        here = expected["physical_offset"] == found["physical_offset"]
        excused: Flags = np.zeros(len(found), np.bool_)
        if self._extension is not None and timestamps is not None:
            excused = found["tags_code"] <= LARGEST_ADDRESS
            self._check_extension(place, expected, found, timestamps, np.flatnonzero(excused))
        if self._is_schedule:
            times = (expected["tags_code"] > 0) & (found["tags_code"] > 0) & (found["tags_code"] < LARGEST_DELIVERY)
            late = here & times & (expected["tags_code"] != found["tags_code"])
            for i in np.flatnonzero(late).tolist():
                due, said = int(expected["tags_code"][i]), int(found["tags_code"][i])
                self._delays[said - due] += 1
                self._delayed.append((place + i, int(expected["physical_offset"][i]), due, said))
            excused = excused | late
        return excused

    def _check_extension(self, place: int, expected: Units, found: Units, timestamps: Numbers, chosen: Numbers) -> None:
        assert self._extension is not None
        self.ext_units += len(chosen)
        addresses = found["tags_code"][chosen].astype(np.int64)
        tags_codes = expected["tags_code"][chosen].astype(np.int64)
        for wrong in self._extension.check(addresses, tags_codes, timestamps[chosen]):
            i = int(chosen[wrong.number])
            if wrong.field == ADDRESS:
                self._say(place + i, "tags_code", expected[i], wrong.expected, wrong.found)
                continue
            name = f"of unit {place + i}, {wrong.field}"
            offset = int(expected["physical_offset"][i])
            at = FoundAt(wrong.path, name, wrong.position, offset)
            self._findings.add(EXT_UNIT, at, wrong.expected, wrong.found)

    def _say_zeros(self, place: int, expected: Units, zeros: Numbers) -> None:
        for run in np.split(zeros, np.flatnonzero(np.diff(zeros) != 1) + 1):
            if not run.size:
                continue
            first, count = int(run[0]), int(run.size)
            path, position = self._files.where(place + first)
            offset = int(expected["physical_offset"][first])
            name = f"unit {place + first}" if count == 1 else f"units {place + first} to {place + first + count - 1}"
            self._findings.add(
                UNIT, FoundAt(path, name, position, offset), f"units of {count} messages", "zeros", count
            )

    def _say(self, place: int, field: str, unit: np.void, expected: int, found: int) -> None:
        path, position = self._where(place, field)
        offset = int(unit["physical_offset"])
        self._findings.add(UNIT, FoundAt(path, f"unit {place} {field}", position, offset), expected, found)

    def _where(self, place: int, field: str) -> tuple[Path, int]:
        path, position = self._files.where(place)
        before = (self._files.dtype.names or ()).index(field)
        sizes = [self._files.dtype[number].itemsize for number in range(before)]
        return path, position + sum(sizes)
