"""The benchmark of searches, in miniature."""

from pathlib import Path

from click.testing import CliRunner

from benchmarks import search
from benchmarks.search import GREP, measure_command, measure_lookup, measure_searches
from benchmarks.store_plan import StorePlan


def test_searches_and_grep_find_the_same_in_turns(store: Path, plan: StorePlan) -> None:
    runs = measure_searches(store, plan, 1)
    found = {(run.name, run.threads > 1): run.found for run in runs}
    assert found[GREP, False] >= 1
    for name in ("rare text", "rare text, anywhere", "regular expression", "JSONPath"):
        assert found[name, False] == 1
    assert found["sender", False] == found["SQL92", False] == 0
    assert all(run.seconds > 0 for run in runs)


def test_every_key_of_a_batch_is_found(store: Path, plan: StorePlan) -> None:
    assert measure_lookup(store, plan, 100).found == 100
    assert measure_command(store, plan, 100).found == 100


def test_the_command_prints_a_table(tmp_path: Path) -> None:
    arguments = ["--store-dir", str(tmp_path), "--count", "3000", "--lookup-count", "3000", "--keys", "50"]
    # grep reads files to their ends, and of the usual gigabyte all but 2 MB would be zeros.
    arguments += ["--segment-size", str(1 << 20), "--rounds", "1", "--no-jars"]
    outcome = CliRunner().invoke(search.main, arguments)
    assert outcome.exit_code == 0, outcome.output
    assert "| rare text | 1 |" in outcome.output
    assert "50 keys in a store of 3,000 messages" in outcome.output
