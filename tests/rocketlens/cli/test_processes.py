"""Commands as processes: files that are cut under them, limits of the process, and what they must not load."""

import os
import resource
import shutil
import subprocess
import sys

import pytest

from process import COMMAND, ROOT
from store_writer import StoreWriter, appended, closed_store

CUTTING = """
import contextlib, mmap, os, sys
kind, kept, noted = sys.argv.pop(1), int(sys.argv.pop(1)), sys.argv.pop(1)

def cut(descriptor):
    path = os.readlink(f"/proc/self/fd/{descriptor}") if descriptor >= 0 else ""
    if f"/{kind}/" in path and os.path.getsize(path) > kept:
        os.truncate(path, kept)
        with open(noted, "a") as notes:
            print(path, file=notes)

def cutting(function, *, first):
    "A function of a descriptor whose file is cut before or behind it, as another process may do."

    def call(descriptor, *arguments, **options):
        if first:
            cut(descriptor)
        result = function(descriptor, *arguments, **options)
        cut(descriptor)
        return result

    return call

mapped = mmap.mmap

class Cutting(mapped):
    def __new__(cls, descriptor, *arguments, **options):
        made = mapped.__new__(cls, descriptor, *arguments, **options)
        cut(descriptor)
        return made

mmap.mmap = Cutting
os.pread, os.preadv = cutting(os.pread, first=True), cutting(os.preadv, first=True)

from storage.kernels import file_map
file_map.FileMap = cutting(file_map.FileMap, first=False)

from loop_engine import LoopEngine
from spark_jobs.run import local_engine
local_engine.LocalEngine = LoopEngine

from rocketlens.cli.main import main
main(prog_name="rocketlens")
"""
"""A command that finds files cut as soon as they are mapped, or read piece by piece; jobs run in its own process."""

LOG, QUEUES, INDEX = KINDS = ("commitlog", "consumequeue", "index")
LEFT = {LOG: 4096, QUEUES: 0, INDEX: 0}
"""Bytes that are left of the recorded store's files: queues and index files are shorter than a page, whose rest reads
as zeros and faults nowhere."""

COMMANDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "find": (("TagA",), (LOG, INDEX)),
    "search": (("--topic", "TopicTest", "--tag", "TagA", "--contains", "x"), KINDS),
    "life": (("--unique-key", "FD000000000000000000000000000002708C30946E09687211CE0017"), (LOG, INDEX)),
    "tail": (("--topic", "TopicTest"), KINDS),
    "topics": ((), KINDS),
    "groups": ((), KINDS),
    "info": ((), (LOG, INDEX)),
    "pending": ((), KINDS),
    "space": ((), (LOG, INDEX)),
    "doctor": ((), KINDS),
}
"""Arguments of each command, and the kinds of files that it maps and reads."""

JOBS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "verify": ((), KINDS),
    "rebuild all": (("--slots", "97", "--entries", "400", "--out", "OUT"), KINDS),
    "compact index": (("--out", "OUT"), KINDS),
    "export": (("--format", "ndjson", "--out", "OUT"), (LOG,)),
    "find --json": (("-f", "KEYS"), (LOG, INDEX)),
    "diff": (("OTHER",), (LOG,)),
}
"""What walks a whole store; OUT is not there yet, OTHER the store itself as it was."""

UNREADABLE = 3

IN_EACH_RUN = {("search", LOG), ("tail", QUEUES)}
"""A command of each way to read, and each kind of file; `make soak` has the others."""

CASES = [
    pytest.param(name, kind, marks=[] if (name, kind) in IN_EACH_RUN else pytest.mark.soak)
    for name, (_, kinds) in {**COMMANDS, **JOBS}.items()
    for kind in kinds
]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_no_command_is_ended_by_the_signal_of_a_cut_file(name, kind, g1_store, tmp_path) -> None:
    """Each reads what was cut: it ends in a line, and gives no answer to what it could not read."""
    (tmp_path / "keys").write_text("hotkey\n6581\n")
    words = {"OUT": str(tmp_path / "out"), "KEYS": str(tmp_path / "keys"), "OTHER": str(g1_store)}
    arguments, _ = {**COMMANDS, **JOBS}[name]
    ended = run_cutting(kind, LEFT[kind], g1_store, tmp_path, name, *(words.get(word, word) for word in arguments))
    assert (tmp_path / "cut").read_text(), "nothing was cut"
    assert ended.returncode == UNREADABLE, f"{ended.returncode}: {ended.stderr}"
    assert "Traceback" not in ended.stderr, ended.stderr
    assert ended.stderr.startswith("rocketlens: "), ended.stderr


def run_cutting(kind, kept, store, folder, command, *arguments) -> "subprocess.CompletedProcess[str]":
    copy = folder / "store"
    shutil.copytree(store, copy)
    noted = folder / "cut"
    noted.touch()
    asked = [sys.executable, "-c", CUTTING, kind, str(kept), str(noted), *command.split(), str(copy), *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests" / "support")}
    return subprocess.run(asked, capture_output=True, text=True, cwd=ROOT, env=environment, check=False, timeout=180)


LIMITS = {"space": resource.RLIMIT_AS, "files": resource.RLIMIT_NOFILE}
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    messages = [appended("T", b"x")] * 300
    writer = closed_store(tmp_path_factory.mktemp("limits") / "store", *messages, segment_size=512)
    return writer.root


def run(words, store, tmp_path, **limits) -> "subprocess.CompletedProcess[str]":
    def limit() -> None:
        for name, value in limits.items():
            resource.setrlimit(LIMITS[name], (value, value))

    named = {"STORE": str(store), "STATE": str(tmp_path / "state")}
    command = [*COMMAND, *(named.get(word, word) for word in words.split())]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=60, preexec_fn=limit
    )  # fmt: skip


SERVE = "serve STORE --listen 127.0.0.1:0 --state-dir STATE"


@pytest.mark.parametrize(
    ("words", "limits", "told"),
    [
        (
            SERVE,
            {"space": 200 * MIB},
            "the limit of 200 MiB of address space is too low: 640 plus the size of the store",
        ),
        ("find STORE 0", {"files": 16}, "the limit of 16 open files is too low: 64 are needed"),
    ],
)
def test_limits_that_no_command_can_live_with_are_named(words, limits, told, store, tmp_path) -> None:
    outcome = run(words, store, tmp_path, **limits)
    assert (outcome.returncode, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith(f"rocketlens: {told}")
    assert outcome.stderr.count("\n") == 1


@pytest.mark.parametrize("words", [pytest.param(SERVE, marks=pytest.mark.soak), "find STORE 1"])
def test_more_segments_than_files_may_be_open_are_no_holes_in_the_log(words, store, tmp_path) -> None:
    outcome = run(words, store, tmp_path, files=64)
    assert (outcome.returncode, outcome.stdout) == (3, "")
    (line,) = set(outcome.stderr.splitlines())
    assert "Too many open files; a store of " in line
    assert "segments needs higher limits (ulimit -n, ulimit -v)" in line


SPARK = {"pyspark", "py4j", "pyarrow"}
"""What bulk jobs alone need."""
SERVER = {"asyncio", "uvloop", "ssl", "grpc", "google"}
WEB = {"starlette", "h11", "prometheus_client", "jinja2"}
ARRAYS = {"numpy"}
TABLES = {"rich"}
HEAVY = SPARK | SERVER | WEB | ARRAYS | TABLES
UNIQUE_KEY = "FD000000000000000000000000000002708C30946E09687211CE0017"
OFFSET_ID = "7F00000100002A9F00000000000019B5"

MODULES = """
import sys
from rocketlens.cli.main import main

def tell():
    print("loaded", *sorted(sys.modules), file=sys.stderr)

try:
    main()
finally:
    tell()
"""


def loaded(*arguments: object) -> set[str]:
    return HEAVY & {name.partition(".")[0] for name in modules_of(*arguments)}


def modules_of(*arguments: object) -> set[str]:
    command = [sys.executable, "-c", MODULES, *map(str, arguments)]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr
    last = outcome.stderr.splitlines()[-1].split()
    assert last[0] == "loaded"
    return set(last[1:])


def test_help_loads_nothing_heavy() -> None:
    assert loaded("--help") == set()


@pytest.mark.parametrize(
    ("line", "heavy"),
    [
        ("find STORE 0", set()),
        pytest.param(f"find STORE {UNIQUE_KEY}", set(), marks=pytest.mark.soak),
        pytest.param("tail STORE TopicTest", set(), marks=pytest.mark.soak),
        ("search STORE TopicTest", ARRAYS),
        pytest.param(f"find STORE {OFFSET_ID} --as offset-id --json", set(), marks=pytest.mark.soak),
        pytest.param("find STORE -f KEYS", ARRAYS, marks=pytest.mark.soak),
        pytest.param(f"life STORE {UNIQUE_KEY}", set(), marks=pytest.mark.soak),
        pytest.param("pending WAITING", set(), marks=pytest.mark.soak),
        pytest.param("topics STORE", set(), marks=pytest.mark.soak),
        pytest.param("groups STORE", set(), marks=pytest.mark.soak),
        pytest.param("info STORE", set(), marks=pytest.mark.soak),
        pytest.param("space STORE", ARRAYS, marks=pytest.mark.soak),
    ],
)
def test_what_reads_a_store_loads_arrays_for_many_rows_alone(g1_store, tmp_path, line, heavy) -> None:
    (tmp_path / "keys").write_text(UNIQUE_KEY + "\n")
    waiting = StoreWriter(tmp_path / "waiting")
    waiting.append("SCHEDULE_TOPIC_XXXX", properties={"REAL_TOPIC": "T", "DELAY": "3"}, queue_id=2)
    waiting.close()
    places = {"STORE": str(g1_store), "KEYS": str(tmp_path / "keys"), "WAITING": str(waiting.root)}
    assert loaded(*(places.get(each, each) for each in line.split())) == heavy
