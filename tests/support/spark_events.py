"""Read a Spark event log: which job ran how many tasks, and on which executors.

Our jobs are described as `COMMAND: PHASE AMOUNT`, and questions are asked by the phase.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext


class SparkEvents:
    """The event log of one application below a directory, read anew at each question."""

    def __init__(self, directory: Path, spark: "SparkContext | None" = None) -> None:
        self._directory = directory
        self._application = spark.applicationId if spark else ""

    def job_tasks(self) -> dict[str, int]:
        """Successful tasks by the phase of their job; of two attempts that succeed Spark takes the first."""
        return dict(Counter(name for name, _ in self._tasks()))

    def executors(self, job: str) -> dict[str, int]:
        """Successful tasks of a job by executor."""
        return dict(Counter(executor for name, executor in self._tasks() if name == job))

    def speculative(self) -> int:
        """How many tasks were started beside an attempt that ran already."""
        starts = [event for event in self._events() if event.get("Event") == "SparkListenerTaskStart"]
        return sum(bool(event["Task Info"]["Speculative"]) for event in starts)

    def lost_executors(self) -> int:
        """How many executors went away."""
        return sum(event.get("Event") == "SparkListenerExecutorRemoved" for event in self._events())

    def repeated_stages(self) -> set[int]:
        """The stages that were begun again, since what they had made was lost."""
        begun = [event["Stage Info"] for event in self._events() if event.get("Event") == "SparkListenerStageSubmitted"]
        return {stage["Stage ID"] for stage in begun if stage["Stage Attempt ID"]}

    def executors_there(self) -> int:
        """How many executors have come and not gone."""
        kinds = Counter(event.get("Event") for event in self._events())
        return kinds["SparkListenerExecutorAdded"] - kinds["SparkListenerExecutorRemoved"]

    def failures(self) -> list[str]:
        """What tasks failed with on their own."""
        ends = [event["Task End Reason"] for event in self._events() if event.get("Event") == "SparkListenerTaskEnd"]
        return [end["Description"] for end in ends if end["Reason"] == "ExceptionFailure"]

    def jobs(self) -> list[tuple[str, str]]:
        """Group and description of each job, in the order in which they were started."""
        return [
            (event["Properties"].get("spark.jobGroup.id", ""), event["Properties"].get("spark.job.description", ""))
            for event in self._events()
            if event.get("Event") == "SparkListenerJobStart"
        ]

    def _tasks(self) -> Iterator[tuple[str, str]]:
        stages: dict[int, str] = {}
        done: set[tuple[int, int]] = set()
        for event in self._events():
            if event.get("Event") == "SparkListenerJobStart":
                name = _phase(event.get("Properties", {}).get("spark.job.description", ""))
                stages.update(dict.fromkeys(event["Stage IDs"], name))
            elif event.get("Event") == "SparkListenerTaskEnd" and event["Task End Reason"]["Reason"] == "Success":
                task = event["Stage ID"], event["Task Info"]["Index"]
                if task not in done:
                    done.add(task)
                    yield stages[event["Stage ID"]], event["Task Info"]["Executor ID"]

    def _events(self) -> Iterator[dict[str, Any]]:
        for log in sorted(self._directory.rglob("*")):
            if log.is_file() and self._application in str(log) and not log.name.startswith("appstatus"):
                for line in log.read_text().splitlines():
                    if line.startswith("{") and line.endswith("}"):
                        yield json.loads(line)


def _phase(description: str) -> str:
    return description.partition(": ")[2].partition(" ")[0]
