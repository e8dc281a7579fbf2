"""Read a Spark event log: which job (`COMMAND: PHASE AMOUNT`, named by its phase) ran how many tasks, and where."""

import json
from collections import Counter


class SparkEvents:
    """The event log of one application below a directory, read anew at each question."""

    def __init__(self, directory, spark=None) -> None:
        self._directory = directory
        self._application = spark.applicationId if spark else ""

    def job_tasks(self) -> dict[str, int]:
        """Successful tasks by the phase of their job; of two attempts that succeed Spark takes the first."""
        return dict(Counter(name for name, _ in self._tasks()))

    def executors(self, job: str) -> dict[str, int]:
        return dict(Counter(executor for name, executor in self._tasks() if name == job))

    def speculative(self) -> int:
        """How many tasks were started beside an attempt that ran already."""
        return sum(bool(event["Task Info"]["Speculative"]) for event in self._events("TaskStart"))

    def lost_executors(self) -> int:
        return len(list(self._events("ExecutorRemoved")))

    def repeated_stages(self) -> set[int]:
        """The stages that were begun again, since what they had made was lost."""
        begun = [event["Stage Info"] for event in self._events("StageSubmitted")]
        return {stage["Stage ID"] for stage in begun if stage["Stage Attempt ID"]}

    def executors_there(self) -> int:
        return len(list(self._events("ExecutorAdded"))) - self.lost_executors()

    def failures(self) -> list[str]:
        """What tasks failed with on their own."""
        ends = [event["Task End Reason"] for event in self._events("TaskEnd")]
        return [end["Description"] for end in ends if end["Reason"] == "ExceptionFailure"]

    def jobs(self) -> list[tuple[str, str]]:
        """Group and description of each job, in the order in which they were started."""
        each = (event["Properties"] for event in self._events("JobStart"))
        return [(named.get("spark.jobGroup.id", ""), named.get("spark.job.description", "")) for named in each]

    def _tasks(self):
        stages: dict[int, str] = {}
        done: set[tuple[int, int]] = set()
        for event in self._events("JobStart", "TaskEnd"):
            if event["Event"] == "SparkListenerJobStart":
                name = _phase(event.get("Properties", {}).get("spark.job.description", ""))
                stages.update(dict.fromkeys(event["Stage IDs"], name))
            elif event["Task End Reason"]["Reason"] == "Success":
                task = event["Stage ID"], event["Task Info"]["Index"]
                if task not in done:
                    done.add(task)
                    yield stages[event["Stage ID"]], event["Task Info"]["Executor ID"]

    def _events(self, *kinds):
        wanted = {f"SparkListener{kind}" for kind in kinds}
        for log in sorted(self._directory.rglob("*")):
            if log.is_file() and self._application in str(log) and not log.name.startswith("appstatus"):
                lines = (line for line in log.read_text().splitlines() if line.startswith("{") and line.endswith("}"))
                yield from (event for event in map(json.loads, lines) if event.get("Event") in wanted)


def _phase(description: str) -> str:
    return description.partition(": ")[2].partition(" ")[0]
