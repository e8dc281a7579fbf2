"""Both engines write the same files: of each job those that a broker wrote, or that an oracle says."""

import contextlib
import json
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from blocking_client import eventually
from column_rows import expected_rows
from command_line import rocketlens
from compact_oracle import build_compacted, keep_entries, read_entries
from exported_files import manifest_of, read_back, rows_of_table
from golden_store import GOLDEN, log_folders, unpack
from job_runs import compact_store
from oracles import read_log, signed
from plain_oracle import moved_units, plain_log
from queue_runs import files_under
from spark_events import SparkEvents
from spark_jobs.build.rebuild_request import RebuildRequest
from spark_jobs.commands.run import run_convert, run_rebuild, run_rescue
from spark_jobs.convert.convert_request import ConvertRequest
from spark_jobs.convert.rescue_request import RescueRequest
from spark_jobs.doctor.deep_check import run_deep_check
from spark_jobs.doctor.deep_request import DeepRequest
from spark_jobs.export.export import run_export
from spark_jobs.export.export_request import ExportRequest
from spark_jobs.places.output_place import OutputPlace
from spark_jobs.run.engine import EngineOptions, opened_engine
from spark_jobs.run.local_engine import LocalEngine
from spark_jobs.run.progress import Silence
from spark_jobs.tables.append import run_append
from spark_jobs.tables.table_request import TableRequest
from storage.amounts import bytes_text
from store_writer import StoreWriter

NOW_AND_THEN = pytest.param("spark", marks=pytest.mark.soak)
"""For a job whose tasks Spark runs as those of the others, which are run in each run."""

SLOTS, ENTRIES = 97, 150
"""Of the recorded store's index files."""


@dataclass(frozen=True)
class JobEngine:
    """One of the two: processes that were started already, or the tests' session of Spark."""

    name: str
    local: LocalEngine | None = None

    def run(self, job, request):
        return job(msgspec.structs.replace(request, engine=self.name), Silence(), self.local)

    @contextlib.contextmanager
    def opened(self):
        with (
            tempfile.TemporaryDirectory() as work,
            opened_engine("test", EngineOptions(engine=self.name), Path(work), ahead=self.local) as engine,
        ):
            yield engine


@pytest.fixture(scope="module", autouse=True)
def here() -> None:
    """No other engine takes the place of these."""


@pytest.fixture(scope="module")
def local_engine():
    with LocalEngine("spark_jobs.build.exchange", processes=2) as engine:
        yield engine


@pytest.fixture(params=["local", "spark"])
def engine(request: pytest.FixtureRequest) -> JobEngine:
    if request.param == "spark":
        request.getfixturevalue("spark")
        return JobEngine("spark")
    return JobEngine("local", request.getfixturevalue("local_engine"))


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> StoreWriter:
    with StoreWriter(tmp_path_factory.mktemp("engines") / "store", segment_size=4096) as writer:
        for number in range(150):
            message = {"tags": "AB"[number % 2], "keys": f"k{number}", "queue_id": number % 5}
            writer.append(f"T{number % 3}", b"body %d" % (number % 11), **message)
        writer.overwrite(writer.written[20].physical_offset + 4, b"\0\0\0\0")
    return writer


@pytest.fixture
def store(writer: StoreWriter) -> Path:
    return writer.root


@pytest.fixture
def sound(writer):
    assert len(writer.records) == 149
    return writer.records


def events_of(spark):
    return SparkEvents(Path(spark.getConf().get("spark.eventLog.dir", "").removeprefix("file://")), spark)


@pytest.mark.parametrize(("engine", "name"), [("local", "store-crashed"), ("spark", "store")], indirect=["engine"])
def test_a_rebuild_gives_what_the_broker_wrote(engine, tmp_path, name, request) -> None:
    """Spark runs a task a segment, and then one a file and a bundle of queues, under the names of phases."""
    store, out = unpack(name, tmp_path), tmp_path / "out"
    events = events_of(request.getfixturevalue("spark")) if engine.name == "spark" else None
    before, jobs_before = (events.job_tasks(), len(events.jobs())) if events else ({}, 0)
    asked = RebuildRequest(store=str(store), out=str(out), index=True, queues=True, from_offset=0)
    details = engine.run(run_rebuild, asked).details
    assert (details.index.kept, details.index.slots, details.index.entries) == ([], SLOTS, ENTRIES)
    assert details.queues.queues == len(list((store / "consumequeue").glob("*/*"))) == 17
    assert files_under(out / "consumequeue") == files_under(store / "consumequeue")
    built, recorded = (list(files_under(root / "index").values()) for root in (out, store))
    if name == "store-crashed":  # the running broker had not put its counts into the last header yet
        built[-1], recorded[-1] = built[-1][40:], recorded[-1][40:]
    assert built == recorded
    assert len(built) == 10
    if events:
        check_jobs(events, before, jobs_before, list((store / "commitlog").iterdir()), len(built))


def check_jobs(events: SparkEvents, before: dict[str, int], jobs_before: int, segments: list[Path], files: int) -> None:
    eventually(lambda: events.job_tasks().get("build", 0) - before.get("build", 0) > files, "the events of the job")
    assert events.job_tasks()["scan"] - before.get("scan", 0) == len(segments)
    size = bytes_text(sum(path.stat().st_size for path in segments))
    groups, descriptions = zip(*events.jobs()[jobs_before:], strict=True)
    assert len(set(groups)) == 1
    assert re.fullmatch("rocketlens rebuild [0-9a-f]{6}", groups[0])
    assert descriptions[:2] == ("rebuild: probe", f"rebuild: scan {size}")
    assert re.fullmatch(r"rebuild: build [0-9,]+ entr(y|ies)", descriptions[-1])


@pytest.mark.parametrize(
    ("engine", "from_log"), [("local", True), pytest.param("spark", False, marks=pytest.mark.soak)], indirect=["engine"]
)
def test_a_compaction_gives_what_the_oracle_says(engine, g1_store, tmp_path, from_log) -> None:
    before = list(files_under(g1_store / "index").values())
    with engine.opened() as opened:
        outcome = compact_store(g1_store, tmp_path / "work", engine=opened, from_log=from_log)
    entries = [entry for data in before for entry in read_entries(data, SLOTS)]
    kept = keep_entries(entries, read_log(g1_store / "commitlog"))
    assert outcome.files == build_compacted(kept, SLOTS, ENTRIES, signed(before[-1], 24, 8))
    assert outcome.compacted.read == len(entries)


@pytest.mark.parametrize("engine", ["local", NOW_AND_THEN], indirect=True)
def test_a_conversion_gives_the_log_of_the_oracle_and_queues_that_lead_to_it(engine: JobEngine, tmp_path: Path) -> None:
    store, out = unpack("store", tmp_path, archives=GOLDEN / "g2" / "g2-dledger-mixed"), tmp_path / "plain"
    recorded = json.loads((GOLDEN / "g2" / "g2-dledger-mixed" / "store.json").read_text())
    levels = recorded["properties"]["messageDelayLevel"]
    report = engine.run(run_convert, ConvertRequest(store=str(store), out=str(out), delay_levels=levels))
    expected = plain_log(log_folders(store), 16384)
    assert (report.exit_code, report.messages) == (0, len(expected.moves))
    assert files_under(out / "commitlog") == expected.segments
    moved = {path: moved_units(data, expected.moves) for path, data in files_under(store / "consumequeue").items()}
    assert files_under(out / "consumequeue") == moved


@pytest.mark.parametrize("engine", ["local", NOW_AND_THEN], indirect=True)
def test_a_rescue_makes_a_store_that_is_clean_of_one_that_is_damaged(engine, store, sound, tmp_path) -> None:
    out = tmp_path / "new"
    assert engine.run(run_deep_check, DeepRequest(store=str(store))).exit_code == 4
    engine.run(run_rescue, RescueRequest(store=str(store), out=str(out)))
    assert engine.run(run_deep_check, DeepRequest(store=str(out))).exit_code == 0
    assert [each for each in read_log(out / "commitlog") if each.topic.startswith("T")] == sound


def test_an_export_and_a_table_have_each_message_once_and_name_the_damage(engine, store, sound, tmp_path) -> None:
    expected = expected_rows(sound)
    out, table = tmp_path / "out", OutputPlace(f"file://{tmp_path}/table")
    exported = engine.run(run_export, ExportRequest(store=str(store), out=str(out), format="parquet"))
    appended = engine.run(run_append, TableRequest(store=str(store), table=table.url, format="jsonl"))
    assert read_back(out) == rows_of_table(table) == expected
    assert appended.details.engine == engine.name
    for report in (exported, appended):
        assert (report.exit_code, len(report.damages)) == (4, 1)
    assert len(manifest_of(out)["problems"]) == 1


COMMANDS: dict[str, tuple[object, ...]] = {
    "search": ("--contains", "body 3", "--json"),
    "find": ("k17\nk99\nnone",),
    "space": ("--by", "topic", "--by", "queue", "--by", "tag", "--by", "hour", "--by", "largest", "--json"),
}

SAID = {
    "local": ("--engine local",),
    "spark": ("--engine spark", "--master local[1]", "--conf spark.task.maxFailures=1"),
}

IN_EACH_RUN = {("local", "space"), ("local", "find"), ("spark", "search")}


@pytest.mark.parametrize(
    ("engine", "name"),
    [
        pytest.param(engine, name, marks=[] if (engine, name) in IN_EACH_RUN else pytest.mark.soak)
        for engine in SAID
        for name in COMMANDS
    ],
    indirect=["engine"],
)
def test_a_command_that_reads_says_what_it_says_without_an_engine(engine, store, tmp_path, name) -> None:
    arguments = COMMANDS[name]
    if name == "find":
        (tmp_path / "keys").write_text(str(arguments[0]))
        arguments = ("-f", tmp_path / "keys")
    here = rocketlens(name, store, *arguments)
    stop = -1 if name == "space" else None  # its last line is a forecast, and the disk is never the same
    for said in SAID[engine.name]:
        there = rocketlens(name, store, *arguments, *said.split())
        assert there.code == here.code
        assert there.messages[:stop] == here.messages[:stop] != []
        assert "hold no intact record" in there.errors or name == "find"
