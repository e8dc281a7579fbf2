"""The stores from which holes of a log may be filled: of slaves, and older copies."""

import os
from pathlib import Path

from protocol.errors import ConfigError
from spark_jobs.convert._find_bytes import LogCopy
from spark_jobs.convert.convert import has_ledger
from spark_jobs.convert.rescue_request import RescueRequest
from spark_jobs.run.work_directory import JobIdentity
from spark_jobs.scan.source import find_source


def find_copies(request: RescueRequest) -> list[LogCopy]:
    """The stores that may fill holes; raises ConfigError or StoreError for one without a plain log."""
    copies = []
    for path in request.fill_from:
        source = find_source(Path(path), ())
        if has_ledger(source):
            raise ConfigError(
                f"--fill-from {path} is a store of DLedger's, in whose log messages lie at other places: "
                "its messages cannot fill a hole"
            )
        if Path(path).resolve() == Path(request.store).resolve():
            raise ConfigError(f"--fill-from {path} is STORE itself")
        copies.append(LogCopy(path, source.segments))
    return copies


def copies_identity(request: RescueRequest) -> JobIdentity:
    """What changes with the copies: a job goes on only while they stay the same."""
    states = []
    for copy in find_copies(request):
        for place in copy.places:
            status = os.stat(place.path)
            states.append([place.path, status.st_size, status.st_mtime_ns])
    return {"copies": states} if states else {}
