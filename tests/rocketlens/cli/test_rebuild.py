"""Jobs as they are typed: options, refusals, plans, reports, exit codes, and how a signal ends one."""

import json
import os
import signal
import sys
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from command_line import rocketlens
from rocketlens.cli import command_run
from rocketlens.cli.command_run import rebuild, run_command
from spark_jobs.build.rebuild_request import RebuildRequest
from spark_jobs.commands.store_report import StoreDetails
from spark_jobs.compact.compact_request import CompactRequest
from spark_jobs.convert.convert_request import ConvertRequest
from spark_jobs.convert.rescue_request import RescueRequest
from spark_jobs.doctor.deep_request import DeepDetails, DeepRequest, IndexNumbers, LogNumbers, QueueNumbers
from spark_jobs.publish.fetch import FetchRequest
from spark_jobs.run.report import AnyReport, Details, Report
from storage.extras import install_line


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


SHARED = {
    "--commit-log /a,/b": {"commit_log_directories": ("/a", "/b")},
    "--work /tmp/w": {"work": "/tmp/w"},
    "--engine local": {"engine": "local"},
    "--master spark://h:7077": {"master": "spark://h:7077"},
    "--conf spark.a=1 --conf spark.b=x=y --conf spark.a=2": {"settings": {"spark.a": "2", "spark.b": "x=y"}},
}
WRITING = SHARED | {"--out /tmp/o": {"out": "/tmp/o"}, "--storage-options {}": {"storage": "{}"}}
WRITING |= {f"--{name.replace('_', '-')}": {name: True} for name in ("drop_backup", "allow_fewer", "fresh")}
INDEX = {"--profile classic": {"profile": "classic"}, "--slots 97": {"slots": 97}, "--entries 150": {"entries": 150}}
INDEX |= {f"--tz {zone}": {"zone": zone} for zone in ("Asia/Shanghai", "-07:00")}
INDEX["--keep-checkpoint"] = {"keep_checkpoint": True}
SENT = {
    "--out s3://bucket/o --work /tmp/w --out-storage-options {}": {
        "out": "s3://bucket/o", "work": "/tmp/w", "out_storage": "{}",
    },
}  # fmt: skip
EXCHANGED = SENT | {"--out s3://bucket/o --exchange shuffle": {"out": "s3://bucket/o", "exchange": "shuffle"}}
FROM_OFFSET = {"--from-offset 0": {"from_offset": 0}}
QUEUES = {
    "--topic A --topic B": {"topics": ("A", "B")},
    "--delay-levels '1s 2h'": {"delay_levels": "1s 2h"},
    "--lmq --ext --drop-unknown-topics": {"lmq": True, "ext": True, "drop_unknown_topics": True},
    "--without-config": {"without_config": True},
    "--queue-file-size 200": {"queue_file_size": 200},
    "--batch-queue-file-size 460": {"batch_queue_file_size": 460},
    "--ext-file-size 4096": {"ext_file_size": 4096},
}
COMPACT = {"--from-log --drop-tags --topic A": {"from_log": True, "drop_tags": True, "topics": ("A",)}}
VERIFY = {"--limit 7": {"limit": 7}, "--since-last": {"since_last": True}, "--delay-levels 1s": {"delay_levels": "1s"}}
VERIFY |= {"--storage-options {}": {"storage": "{}"}}

OF_FETCH = ("--commit-log", "--work", "--storage-options", "--drop-backup", "--allow-fewer", "--fresh")
OF_CONVERT = ("--commit-log", "--work", "--master", "--conf", "--fresh", "--storage-options", "--profile", "--slots")
OF_CONVERT += ("--entries", "--tz", "--delay-levels", "--without-config")
RESCUE = {"--link": {"link": True}, "--segment-size 4096": {"segment_size": 4096}}


def of_all(cases, names):
    return {options: fields for options, fields in cases.items() if options.split()[0] in names}


COMMANDS = {
    "rebuild index /store": (RebuildRequest, {"index": True}, WRITING | EXCHANGED | INDEX | FROM_OFFSET),
    "rebuild queues /store": (RebuildRequest, {"queues": True}, WRITING | EXCHANGED | QUEUES),
    "rebuild all /store": (
        RebuildRequest,
        {"index": True, "queues": True},
        WRITING | EXCHANGED | INDEX | FROM_OFFSET | QUEUES,
    ),
    "compact index /store": (CompactRequest, {}, WRITING | EXCHANGED | INDEX | COMPACT),
    "doctor --deep /store": (DeepRequest, {}, SHARED | VERIFY),
    "rebuild fetch s3://bucket/o /store": (FetchRequest, {"url": "s3://bucket/o"}, of_all(WRITING, OF_FETCH)),
    "convert /store --out /o": (ConvertRequest, {"out": "/o"}, of_all(WRITING | INDEX | QUEUES, OF_CONVERT)),
    "rescue /store --out /o": (RescueRequest, {"out": "/o"}, RESCUE),
}
"""What each command asks for, without options, and what becomes of each of its options."""


def words(text: str) -> list[str]:
    return [word.strip("'") for word in text.replace("'1s 2h'", "'1s\t2h'").split(" ")]


@pytest.fixture
def job(monkeypatch):
    return stand_in(monkeypatch)


@pytest.mark.parametrize("command", COMMANDS)
def test_an_option_becomes_a_field_of_the_request(job, command) -> None:
    kind, fixed, cases = COMMANDS[command]
    for options in ("", *cases):
        arguments = [word.replace("\t", " ") for word in words(options) if word]
        outcome = rocketlens(*command.split(), *arguments)
        asked = kind(**{"store": "/store", **fixed, **cases.get(options, {})})
        assert (outcome.code, job.requests.pop()) == (0, asked), (options, outcome.errors)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_report_is_printed_as_json(job, command) -> None:
    outcome = rocketlens(*command.split(), "--json")
    assert outcome.code == 0, outcome.errors
    assert isinstance(json.loads(outcome.output), dict)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rebuild", "index", "/store", "--entries", "2147483648"], "not in the range"),
        (["doctor", "--deep", "/store", "--conf", "spark.a"], "'spark.a', expected a Spark property"),
        (["doctor", "--deep", "/store", "--commit-log", "/a,,/b"], "'/a,,/b' has an empty directory name"),
        (["rebuild", "all", "/store", "--out", "/store"], "--out is the store itself"),
        (["rebuild", "all", "/store", "--work", "s3://bucket/place"], "--work s3://bucket/place is a URL: "),
        (["rebuild", "all", "/store", "--out", "/a/../store/new"], "--out /a/../store/new lies inside the store"),
    ],
)  # fmt: skip
def test_wrong_usage_is_told_before_anything_starts(job, arguments, message) -> None:
    outcome = rocketlens(*arguments)
    assert (outcome.code, job.requests, outcome.output) == (2, [], b"")
    assert message in " ".join(outcome.errors.split())


@pytest.mark.parametrize("command", ["rebuild all", "compact index", "doctor --deep"])
def test_the_store_may_be_a_url_and_is_never_written_to(job, command) -> None:
    writes = command != "doctor --deep"
    out = ["--out", "/out"] if writes else []
    for url, store in {"s3://bucket/place": "s3://bucket/place", "file:///srv/the%20place": "/srv/the place"}.items():
        rocketlens(*command.split(), url, *out)
        assert job.requests.pop().store == store
    outcome = rocketlens(*command.split(), "s3://bucket/place", "--storage-options", "[]", *out)
    assert (outcome.code, job.requests) == (2, [])
    assert "storage_options: expected a JSON object" in outcome.errors
    if not writes:
        return
    outcome = rocketlens(*command.split(), "s3://bucket/place")
    assert (outcome.code, job.requests) == (2, [])
    stays = "is a URL and stays as it is: --out says where to write"
    assert outcome.errors == f"rocketlens: STORE s3://bucket/place {stays}\n"
    store, work = "s3://bucket/place", ("--work", "/w")
    assert rocketlens(*command.split(), store, "--out", "s3://bucket/other", *work).code == 0
    assert (job.request.store, job.request.out) == (store, "s3://bucket/other")
    inside = rocketlens(*command.split(), store, "--out", f"{store}/other", *work)
    assert (inside.code, len(job.requests), "lies inside the store" in inside.errors) == (2, 1, True)


def test_without_spark_it_says_what_to_install(job, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    outcome = rocketlens("rebuild", "all", "/store", "--engine", "spark")
    assert (outcome.code, outcome.errors) == (2, f"rocketlens: this needs Spark: {install_line('spark')}\n")


def test_the_time_is_that_until_the_command_ends(job, monkeypatch) -> None:
    """What comes behind the job is waited for too: 68 of 251 seconds were not reported."""
    clock = iter([100.0, 351.0])
    monkeypatch.setattr(command_run, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    job.report.seconds = 183.0
    outcome = rocketlens("rebuild", "index", "/store")
    assert " in 0:04:11: " in outcome.text


def test_at_the_end_are_the_lines_to_undo_and_to_clean_up(job) -> None:
    backups = ["/a store/index.bak-20260102030405", "/a store/checkpoint.bak-20260102030405"]
    details = StoreDetails(published=["index", "checkpoint", "consumequeue"], backups=backups)
    job.report = Report(command="rebuild", store="/a store", out="/a store", details=details)
    assert rocketlens("rebuild", "all", "/a store").text.splitlines()[-2:] == [
        "to undo, while no broker runs: mv '/a store/index' '/a store/index.rebuilt' && "
        "mv '/a store/index.bak-20260102030405' '/a store/index' && "
        "mv '/a store/checkpoint' '/a store/checkpoint.rebuilt' && "
        "mv '/a store/checkpoint.bak-20260102030405' '/a store/checkpoint' && "
        "mv '/a store/consumequeue' '/a store/consumequeue.rebuilt'",
        "to clean up, once all is well: rm -r '/a store/index.bak-20260102030405' "
        "'/a store/checkpoint.bak-20260102030405'",
    ]
    job.report = Report(command="rebuild", store="/s", out="/o", details=StoreDetails(published=["index"]))
    assert rocketlens("rebuild", "index", "/s", "--out", "/o").text.splitlines()[-1] == "to undo: rm -r /o/index"


def test_without_java_it_says_what_to_install(g1_store, monkeypatch, tmp_path) -> None:
    command = ("doctor", "--deep", str(g1_store), "--engine", "spark")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    outcome = rocketlens(*command)
    assert outcome.code == 2
    assert f"JAVA_HOME is {tmp_path}, which has no bin/java" in outcome.errors
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "there is none in PATH" in rocketlens(*command).errors


@pytest.fixture
def handlers():
    """Handlers of signals are as they were when the test is over."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_even_if_it_was_ignored_and_a_second_one_is_of_no_use(capsys, number) -> None:
    signal.signal(number, signal.SIG_IGN)

    def job(_options: object, _progress: object, _launch: object) -> Report:
        os.kill(os.getpid(), number)
        raise AssertionError("the signal did not stop the job")

    with pytest.raises(SystemExit) as stopped:
        run_command(job, as_json=False, store="/store")
    assert stopped.value.code == 130
    assert capsys.readouterr().err == "rocketlens: stopped; run the same command again to continue\n"
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


@pytest.mark.parametrize(("as_json", "told"), [(False, "rocketlens: working\n"), (True, "")])
def test_under_spark_submit_json_stands_alone(job, monkeypatch, capsys, as_json, told) -> None:
    """There stdout and stderr are one."""
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    with pytest.raises(SystemExit):
        run_command(rebuild, as_json=as_json, store="/store", index=True)
    assert job.request.index
    assert capsys.readouterr().err == told
