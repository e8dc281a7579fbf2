"""Several processes share reading the tests, and when one of them dies, it is said how and over what."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from several_processes import group_of, refuse_more_sessions

SUPPORT = Path(__file__).parent / "support"
BEGINNING = """
import os, signal
from pathlib import Path

def test_first(): note("first")
def test_second(): note("second")
def test_third(): note("third")

def note(name):
    with open(Path(__file__).with_name("ran"), "a") as file:
        file.write(f"{Path(__file__).stem} {name}\\n")
"""
DEATHS = {"SIGBUS": "os.kill(os.getpid(), signal.SIGBUS)", "exit code 3": "os._exit(3)"}
PATIENCE_SECONDS = 500
"""For a run that never ends."""


@pytest.mark.parametrize(
    ("how", "over", "processes"),
    [("exit code 3", "third", 2), pytest.param("SIGBUS", "second", 1, marks=pytest.mark.soak)],
)
def test_a_process_that_dies_is_told_of_and_all_other_tests_are_run_once(
    tmp_path: Path, how: str, over: str, processes: int
) -> None:
    for name in ("one", "two"):
        (tmp_path / f"test_{name}.py").write_text(BEGINNING)
    note = f'note("{over}")'
    (tmp_path / "test_two.py").write_text(BEGINNING.replace(note, f"{note}, {DEATHS[how]}"))
    ended = run_tests(tmp_path, processes)
    ran = (tmp_path / "ran").read_text().splitlines()
    assert sorted(ran) == [f"test_{name} {test}" for name in ("one", "two") for test in ("first", "second", "third")]
    assert f"crashed while running 'test_two.py::test_{over}': {how}\n" in ended.stdout, ended.stderr
    assert "1 failed, 5 passed" in ended.stdout
    assert ended.returncode == 1


def run_tests(folder: Path, processes: int) -> "subprocess.CompletedProcess[str]":
    """Run the tests of a folder in several processes, with our plugin and no other settings of this project."""
    options = ["-q", "-n", str(processes), "-c", os.devnull, "--rootdir", str(folder)]
    plugins = [f"-p{name}" for name in ("xdist", "several_processes", "no:cacheprovider", "no:faulthandler")]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *plugins, str(folder)],
        env={**os.environ, "PYTHONPATH": str(SUPPORT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


READING = """
import os
from pathlib import Path

with open(Path(__file__).with_name(os.environ["PYTEST_XDIST_WORKER"]), "a") as file:
    file.write(Path(__file__).stem[-1])

def test_it(): ...
"""


def test_each_process_reads_other_files_first_and_all_in_the_end(tmp_path: Path) -> None:
    for name in "abcde":
        (tmp_path / f"test_{name}.py").write_text(READING)
    ended = run_tests(tmp_path, 2)
    assert "5 passed" in ended.stdout, ended.stdout + ended.stderr
    assert [(tmp_path / process).read_text() for process in ("gw0", "gw1")] == ["acebd", "bdace"]


FIXTURE = "spark"
ASKING = {
    "a context": "def test_it(tmp_path: Path, {fixture}: SparkContext) -> None: ...",
    "anything": "def test_it({fixture}: object) -> None: ...",
    "a SQL session": "def test_it(session: {quoted_type}) -> None: ...",
    "a mark": 'pytestmark = pytest.mark.usefixtures("{fixture}")',
    "a mark of several": '@pytest.mark.usefixtures("{fixture}", "other")',
}
"""How a file asks for the session, with names left out, so that this file does not ask for it."""
NOT_ASKING = (
    "def test_it(session: ClusterSession) -> None: submit('spark_jobs/doctor_store.py', spark=SparkTarget(''))\n"
    'def test_that(): assert wanted_by("spark") == ENGINES["local", "spark"]'
)


@pytest.mark.parametrize("how", ASKING)
def test_files_that_ask_for_the_spark_session_share_a_process_and_the_others_do_not(tmp_path: Path, how: str) -> None:
    asking = ASKING[how].format(fixture=FIXTURE, quoted_type='"SparkSession"')
    names = {"spark_jobs/test_one.py": asking, "test_two.py": f"\n{asking}", "spark_jobs/test_apart.py": NOT_ASKING}
    (tmp_path / "tests" / "spark_jobs").mkdir(parents=True)
    for name, text in names.items():
        (tmp_path / "tests" / name).write_text(text)
    groups = [group_of(f"tests/{name}::test_it", tmp_path) for name in names]
    assert groups == ["Spark", "Spark", "tests/spark_jobs/test_apart.py"]


def test_a_test_that_would_start_one_more_spark_session_is_refused(request: pytest.FixtureRequest) -> None:
    item = request.node
    refuse_more_sessions(request.config, [item])
    item.fixturenames.append(FIXTURE)
    with pytest.raises(pytest.UsageError, match="_is_refused shares no Spark session"):
        refuse_more_sessions(request.config, [item])
