"""Compare units of a queue's files, field by field, with the units that follow from the log."""

from collections import Counter
from typing import Final

import numpy as np

from storage.doctor.finding import Findings, FoundAt, Kind
from storage.doctor.log.scanned_log import Flags, Numbers, ScannedLog
from storage.doctor.queues._ext_units import ExtUnits
from storage.doctor.queues.unit_files import UnitFiles, Units, are_zeros, runs_of
from storage.doctor.words import lost_units, unit_name
from storage.queue.consume_queue_ext import LARGEST_ADDRESS

LARGEST_DELIVERY: Final = 1 << 62


class UnitComparison:
    """Compares the units of one queue. `extension`: where addresses in tags codes lead, None for queues without.

    `is_schedule`: tags codes are delivery times, which follow from the delay levels of the broker's configuration.
    """

    def __init__(
        self,
        files: UnitFiles,
        extension: ExtUnits | None,
        log: ScannedLog,
        findings: Findings,
        *,
        is_schedule: bool = False,
    ) -> None:
        """Nothing is compared yet."""
        self.files, self.log, self.findings = files, log, findings
        self._extension = extension
        self._is_schedule = is_schedule
        self._compared = 0
        self._delays: Counter[int] = Counter()
        self._delayed: list[tuple[int, int, int, int]] = []
        self.other_delays = 0
        self.ext_units = 0

    def compare(self, place: int, expected: Units, found: Units, timestamps: Numbers) -> None:
        """Compare units from a position on with the expected ones; `timestamps` of their messages (ms)."""
        self._compared += len(expected)
        if expected.tobytes() == found.tobytes():
            return
        zeros = are_zeros(found)
        self._report_zeros(place, expected, zeros)
        for field in found.dtype.names or ():
            wrong = (expected[field] != found[field]) & ~zeros
            if field == "tags_code":
                wrong &= ~self._are_addresses(place, expected, found, timestamps)
                wrong &= ~self._are_other_delays(place, expected, found)
            for i in np.flatnonzero(wrong).tolist():
                self._report(place + i, field, expected[i], int(expected[field][i]), int(found[field][i]))

    def finish(self) -> None:
        """All units have been seen: delivery times that differ alike follow from other delay levels."""
        for place, offset, expected, found in self._delayed:
            if self._delays[found - expected] == 1 and self._compared > 1:
                self.findings.note(Kind.UNIT, self.files.found_at(place, offset, "tags_code"), expected, found)
        self.other_delays = sum(count for count in self._delays.values() if count >= 2 or self._compared == 1)

    def _are_other_delays(self, place: int, expected: Units, found: Units) -> Flags:
        """Which tags codes are delivery times, but other ones: they are judged when all are known."""
        wanted, said = expected["tags_code"].astype(np.int64), found["tags_code"].astype(np.int64)
        other = (expected["physical_offset"] == found["physical_offset"]) & (wanted != said)
        other &= (wanted > 0) & (said > 0) & (said < LARGEST_DELIVERY) & self._is_schedule
        for i in np.flatnonzero(other).tolist():
            self._delays[int(said[i] - wanted[i])] += 1
            self._delayed.append((place + i, int(expected["physical_offset"][i]), int(wanted[i]), int(said[i])))
        flags: Flags = other
        return flags

    def _are_addresses(self, place: int, expected: Units, found: Units, timestamps: Numbers) -> Flags:
        """Which tags codes are addresses of extension units; these are compared."""
        if self._extension is None:
            return np.zeros(len(found), np.bool_)
        are_addresses: Flags = found["tags_code"] <= LARGEST_ADDRESS
        chosen = np.flatnonzero(are_addresses)
        self.ext_units += len(chosen)
        addresses, tags_codes = (units["tags_code"][chosen].astype(np.int64) for units in (found, expected))
        for wrong in self._extension.check(addresses, tags_codes, timestamps[chosen]):
            i = int(chosen[wrong.number])
            if not wrong.field:
                self._report(place + i, "tags_code", expected[i], wrong.expected, wrong.found)
                continue
            offset = int(expected["physical_offset"][i])
            at = FoundAt(wrong.path, f"of {unit_name(place + i)}, {wrong.field}", wrong.position, offset)
            self.findings.note(Kind.EXT_UNIT, at, wrong.expected, wrong.found)
        return are_addresses

    def _report_zeros(self, place: int, expected: Units, zeros: Flags) -> None:
        if self.log.is_live:  # a broker deletes files together with the log that they are of
            zeros = zeros & (expected["physical_offset"] >= self.log.expired_below())
        for first, count in runs_of(zeros):
            at = self.files.found_at(place + first, int(expected["physical_offset"][first]), count=count)
            self.findings.note(Kind.UNIT, at, *lost_units(count), count)

    def _report(self, place: int, field: str, unit: np.void, expected: int, found: int) -> None:
        self.findings.note(Kind.UNIT, self.files.found_at(place, int(unit["physical_offset"]), field), expected, found)
