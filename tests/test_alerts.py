"""The alerts, held by Prometheus's own tool: each fires when it must, and not before.

promtool is built once with Go into the cache of the jars, which takes some minutes of CPU: what runs it is of the soak.
"""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from interop.jars import cached

ROOT = Path(__file__).parent.parent
ALERTS = ROOT / "deploy" / "alerts.yaml"
CASES = ROOT / "tests" / "data" / "alerts-test.yaml"
VERSION = "v0.305.0"
"""Of the Go module github.com/prometheus/prometheus: Prometheus 3.5."""


def build(folder: Path) -> None:
    """Build promtool into a folder that is not there yet."""
    folder.mkdir()
    for command in (
        ["go", "mod", "init", "promtool"],
        ["go", "get", f"github.com/prometheus/prometheus/cmd/promtool@{VERSION}"],
        ["go", "build", "-o", "promtool", "github.com/prometheus/prometheus/cmd/promtool"],
    ):
        subprocess.run(command, cwd=folder, check=True, timeout=1800)


@pytest.fixture(scope="module")
def promtool() -> Path:
    return cached(f"promtool-{VERSION}", build) / "promtool"


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """A copy of the alerts beside the cases that name them."""
    shutil.copy(CASES, tmp_path)
    return Path(shutil.copy(ALERTS, tmp_path))


def run(promtool: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([promtool, *words], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.soak
def test_promtool_accepts_the_rules(promtool: Path, rules: Path) -> None:
    checked = run(promtool, rules.parent, "check", "rules", rules.name)
    assert checked.returncode == 0, checked.stderr
    count = len(yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"])
    assert f"SUCCESS: {count} rules found" in checked.stdout


@pytest.mark.soak
def test_every_alert_fires_when_it_must_and_not_before(promtool: Path, rules: Path) -> None:
    held = run(promtool, rules.parent, "test", "rules", CASES.name)
    assert held.returncode == 0, held.stdout + held.stderr


def test_no_alert_is_without_a_case_in_which_it_fires() -> None:
    named = {
        expected["alertname"]
        for case in yaml.safe_load(CASES.read_text())["tests"]
        for expected in case["alert_rule_test"]
        if expected["exp_alerts"]
    }
    assert named == {rule["alert"] for rule in yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]}
