"""Which tests share a process where there are several."""

from pathlib import Path

import pytest

from several_processes import group_of, refuse_more_sessions

FIXTURE = "spark"
ASKING = {
    "a context": "def test_it(tmp_path: Path, {fixture}: SparkContext) -> None: ...",
    "a SQL session": "def test_it(session: {quoted_type}) -> None: ...",
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
