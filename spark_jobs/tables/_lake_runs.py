"""What runs write for tables whose own metadata name the data files: Iceberg and Delta.

    TABLE/data/RUN/TASK.TOKEN/topic=T/date=D/part-….parquet   data files, which stay where they were written
    TABLE/_rocketlens/_attempts/RUN/_run.json                 who makes a run that has not ended

RUN begins with a number of the state of the table that the run is based on, and the one state that it can become is the
next one. So as soon as there is a next one, it is certain of each run based on the one before whether it counts.
"""

import contextlib
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from protocol.errors import ConfigError, StoreError
from spark_jobs.places.output_place import OutputPlace
from spark_jobs.places.place_names import ATTEMPTS
from spark_jobs.places.placed_run import PlacedRun, enter, new_token
from spark_jobs.tables._compact_files import DATA_DIRECTORY
from spark_jobs.tables._table import DataFile
from spark_jobs.tables._table_runs import confirm
from spark_jobs.tables.table_names import HIDDEN


class Winner(NamedTuple):
    """Which run made a state of a table, "" for another program; `files` are the names of those that came with it."""

    run: str
    files: frozenset[str]


class LakeRuns:
    """The data files of the runs of one table."""

    def __init__(self, url: str, storage: str) -> None:
        """Name the place; raises ConfigError where nothing can be written, PlantedFile where others lead astray."""
        self.place = OutputPlace(url, storage)
        # The formats' own libraries know the table by its name.
        self.place.require_own()

    @property
    def url(self) -> str:
        """The place of the table."""
        return self.place.url

    def refuse_foreign(self, known: Collection[str]) -> None:
        """Raise ConfigError where there is no table, but something that is not one of the `known` names."""
        foreign = [name for name in self.place.names() if name not in known and name != HIDDEN]
        if foreign:
            raise ConfigError(f"--to {self.url}: it contains {foreign[0]}, and no table: choose an empty place")

    def begin(self, base: int) -> PlacedRun:
        """Begin a run that is based on the state of that number."""
        token = f"{base:018d}-{new_token()}"
        entered = self._entered(token)
        enter(entered.place(), entered, "export")
        self.place.require_own()
        return PlacedRun(self.url, self.place.storage, token, DATA_DIRECTORY)

    def path(self, file: DataFile) -> str:
        """The URL of a data file."""
        return self.place.path(file.written)

    def confirm(self, run: PlacedRun, files: Iterable[DataFile]) -> None:
        """Raise StoreError where a file that is going to count is not there."""
        confirm(self.place, run.directory, files)

    def finish(self, token: str, files: Collection[str]) -> None:
        """End a run of which these files count; nothing else of it stays."""
        self.place.remove(name for name in self.place.objects(f"{DATA_DIRECTORY}/{token}") if name not in files)
        entered = self._entered(token)
        self.place.remove(f"{HIDDEN}/{name}" for name in entered.place().objects(entered.directory))

    def discard(self, token: str) -> None:
        """End a run of which nothing counts, if the place can be reached."""
        with contextlib.suppress(StoreError, OSError):
            self.finish(token, ())

    def sweep(self, head: int, winner_after: Callable[[int], Winner | None]) -> None:
        """End the runs that were killed and are based on a state before the one of number `head`.

        `winner_after` says who followed a state, None where that is not known any more: then everything stays.
        """
        for name in self.place.names(f"{HIDDEN}/{ATTEMPTS}"):
            token = name.rpartition("/")[2]
            base = token.partition("-")[0]
            if not base.isdecimal() or int(base) >= head:
                continue
            winner = winner_after(int(base))
            if winner is not None:
                self.finish(token, winner.files if winner.run == token else ())

    def _entered(self, token: str) -> PlacedRun:
        return PlacedRun(f"{self.url}/{HIDDEN}", self.place.storage, token)


def base_of(run: PlacedRun) -> int:
    """The number of the state that a run is based on."""
    return int(run.token.partition("-")[0])
