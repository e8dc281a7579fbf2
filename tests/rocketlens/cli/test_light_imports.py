"""What commands must not load: a process is asked for its modules when it has done its work."""

import subprocess
import sys
from pathlib import Path

import pytest

from rocketlens.cli.main import COMMANDS
from store_writer import StoreWriter

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
    """The heavy modules that are loaded when a command ends with what it was asked for."""
    return HEAVY & {name.partition(".")[0] for name in modules_of(*arguments)}


def modules_of(*arguments: object) -> set[str]:
    """All modules that are loaded when a command ends with what it was asked for."""
    outcome = subprocess.run(
        [sys.executable, "-c", MODULES, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert outcome.returncode == 0, outcome.stderr
    last = outcome.stderr.splitlines()[-1].split()
    assert last[0] == "loaded"
    return set(last[1:])


def test_help_loads_nothing_heavy() -> None:
    assert loaded("--help") == set()


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(command, marks=[] if command in ("export", "serve") else pytest.mark.soak)
        for command in sorted(COMMANDS)
    ],
)
def test_the_help_of_a_command_loads_nothing_heavy(command: str) -> None:
    assert loaded(command, "--help") == set()


def test_what_is_found_loads_nothing_that_looks_into_messages_or_writes_files(g1_store: Path) -> None:
    found = modules_of("find", g1_store, UNIQUE_KEY, "--json")
    assert "storage.search.find" in found
    unneeded = ("storage.search.engine", "storage.filter", "storage.life.transactions", "storage.life.message_life")
    unneeded += (
        "storage.doctor",
        "storage.space",
        "storage.columns",
        "spark_jobs.search",
        "broker.cluster",
        "broker.net",
    )
    assert [name for name in sorted(found) if name.startswith(unneeded)] == []


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
def test_what_reads_a_store_loads_arrays_for_many_rows_alone(
    g1_store: Path, tmp_path: Path, line: str, heavy: set[str]
) -> None:
    (tmp_path / "keys").write_text(UNIQUE_KEY + "\n")
    waiting = StoreWriter(tmp_path / "waiting")
    waiting.append("SCHEDULE_TOPIC_XXXX", properties={"REAL_TOPIC": "T", "DELAY": "3"}, queue_id=2)
    waiting.close()
    places = {"STORE": str(g1_store), "KEYS": str(tmp_path / "keys"), "WAITING": str(waiting.root)}
    assert loaded(*(places.get(each, each) for each in line.split())) == heavy
