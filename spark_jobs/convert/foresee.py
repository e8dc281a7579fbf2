"""What a rescue would keep and lose, found out by reading the log once; all that is written is temporary."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec.structs import replace

from spark_jobs.build import exchange
from spark_jobs.build.place_queues import log_extent
from spark_jobs.build.rebuild import Rebuild
from spark_jobs.convert._fill_holes import HoleFilling
from spark_jobs.convert._fillings import Fillings
from spark_jobs.convert._log_gaps import find_gaps, first_file
from spark_jobs.convert._losses import Losses, find_losses
from spark_jobs.convert.rescue_request import RescueRequest
from spark_jobs.places.place_names import WORK
from spark_jobs.run.engine import opened_engine
from spark_jobs.run.progress import Silence
from spark_jobs.run.work_directory import WorkDirectory
from spark_jobs.scan.scan_log import total
from spark_jobs.scan.source import StoreSource
from storage.amounts import counted


class RescueForecast(msgspec.Struct, frozen=True, rename="camel"):
    """How many messages a rescue keeps, which it loses, and what copies fill."""

    kept: int
    losses: Losses
    fillings: Fillings

    def sentences(self) -> Iterator[str]:
        """For a person."""
        yield f"keeps {counted(self.kept, 'message')}"
        yield from self.fillings.sentences()
        yield from self.losses.sentences()


def foresee(request: RescueRequest, source: StoreSource) -> RescueForecast:
    """Read the log as a rescue reads it; raises what that raises."""
    wanted, progress = replace(request, index=False), Silence()
    bare = replace(source, index_files=(), problems=())
    with (
        tempfile.TemporaryDirectory(prefix="rocketlens-") as directory,
        contextlib.closing(WorkDirectory.open(Path(directory, WORK), {})) as work,
        opened_engine("rescue", request, work.root, tasks=exchange.__name__) as engine,
        contextlib.closing(exchange.FileExchange(engine, work, progress)) as files,
    ):
        read = Rebuild(wanted, bare, work, engine, files, checks_all=True).scan()
        fillings = Fillings()
        if request.fill_from:
            fillings = HoleFilling(request, source, work, engine.run_tasks, progress).look(read)
    log = log_extent(source.segments[0].base_offset, read.log_end.end, read.log_end.damages)
    if not source.layout.ledgers:
        log = find_gaps(request, source, read.segments, read.log_end).log
    kept = total(read.segments, "records") + sum(hole.messages for hole in fillings.filled)
    losses = find_losses(source.layout.root, fillings.left_of(log), first_file(source))
    return RescueForecast(kept, losses, fillings)
