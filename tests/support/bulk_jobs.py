"""Stands in for the bulk jobs under their commands: what was asked for, and an answer of the test's."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from spark_jobs.commands import command_run
from spark_jobs.run.report import AnyReport, Details


@dataclass
class StandIn:
    """A job that keeps its requests and answers with `report`, or raises `error`."""

    report: AnyReport = field(
        default_factory=lambda: AnyReport(command="rebuild", store="/store", out="/store", details=Details())
    )
    error: BaseException | None = None
    requests: list[Any] = field(default_factory=list)

    def __call__(self, request: Any, progress: Any, launch: Any = None) -> AnyReport:
        self.requests.append(request)
        progress.note("working")
        if self.error is not None:
            raise self.error
        return self.report

    @property
    def request(self) -> Any:
        """The one request."""
        (request,) = self.requests
        return request


def stand_in(patch: pytest.MonkeyPatch) -> StandIn:
    """Put one in the place of all jobs; nothing is compiled, and no signal's handler outlives the test."""
    job = StandIn()
    patch.setattr("spark_jobs.commands.run.run_rebuild", job)
    for name in ("compact", "convert", "fetch", "rescue"):
        patch.setattr(f"spark_jobs.commands.run.run_{name}", job)
    patch.setattr("spark_jobs.verify.verify.run_verify", job)
    patch.setattr(command_run.signal, "signal", lambda number, handler: None)
    return job
