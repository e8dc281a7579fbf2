"""Stands in for the bulk jobs under their commands: what was asked for, and an answer of the test's."""

from dataclasses import dataclass, field
from typing import Any

from rocketlens.cli import command_run
from spark_jobs.doctor.deep_request import DeepDetails, IndexNumbers, LogNumbers, QueueNumbers
from spark_jobs.run.report import AnyReport, Details, Report


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
        (request,) = self.requests
        return request


def _as_read(report: AnyReport) -> Report[DeepDetails]:
    kinds = (LogNumbers, QueueNumbers, IndexNumbers)
    log, queues, index = (kind(**dict.fromkeys(kind.__struct_fields__, 0)) for kind in kinds)
    details = DeepDetails(clean=True, log=log, queues=queues, index=index, counts={}, findings=[])
    return Report(command=report.command, store=report.store, out=report.out, details=details)


def stand_in(patch):
    """Put one in the place of all jobs; no Java is looked for, and no signal's handler outlives the test."""
    job = StandIn()
    patch.setattr("spark_jobs.run.engine.find_java", lambda: "java")
    patch.setattr("spark_jobs.commands.run.run_rebuild", job)
    for name in ("compact", "convert", "fetch", "rescue"):
        patch.setattr(f"spark_jobs.commands.run.run_{name}", job)
    patch.setattr("spark_jobs.doctor.deep_check.run_deep_check", lambda *arguments: _as_read(job(*arguments)))
    patch.setattr("rocketlens.cli.doctor._examine", lambda *_: None)
    patch.setattr(command_run.signal, "signal", lambda number, handler: None)
    return job
