"""The unit, the manifest and the alerts of the server: each fits its own tool or schema, and names what there is."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest
import yaml

from broker.web._metrics_families import FAMILIES
from compose import COMPOSE_FILE, dockerfile_stages, load
from protocol.codes import ResponseCode
from rocketlens.cli.main import main
from rocketlens.cli.serve import serve

ROOT = Path(__file__).parent.parent
UNIT = ROOT / "deploy" / "rocketlens.service"
MANIFEST = ROOT / "deploy" / "kubernetes-server.yaml"
ALERTS = ROOT / "deploy" / "alerts.yaml"
COMPOSE_LOGIN = ROOT / "deploy" / "compose-login.yaml"
RUNBOOK = "https://docs.example.org/rocketlens/"
MOST_EXPOSED = 2.0
"""What `systemd-analyze security` may say at most; 0 is best, 10 is worst."""

Document = dict[str, Any]

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


def unit_with(tmp_path: Path, **changes: str) -> Path:
    """A copy of the unit whose command is there, with other texts in it."""
    text = UNIT.read_text().replace("/opt/rocketlens/bin/rocketlens ", "/bin/true ")
    for right, wrong in changes.items():
        assert right in text
        text = text.replace(right, wrong)
    (tmp_path / UNIT.name).write_text(text)
    return tmp_path / UNIT.name


def analyzed(*words: object) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@needs_systemd
def test_systemd_verifies_the_unit(tmp_path: Path) -> None:
    outcome = analyzed("verify", unit_with(tmp_path))
    assert (outcome.returncode, outcome.stdout, outcome.stderr) == (0, "", "")


@needs_systemd
def test_systemd_calls_the_unit_hardened(tmp_path: Path) -> None:
    said = analyzed("security", "--offline=yes", unit_with(tmp_path)).stdout
    exposure = re.search(r"Overall exposure level for \S+: ([0-9.]+)", said)
    assert exposure is not None, said
    assert float(exposure[1]) <= MOST_EXPOSED


def options_of(words: list[str]) -> Document:
    """What `rocketlens serve` makes of its arguments; a usage error fails the test."""
    assert words[0] == "serve"
    parent = click.Context(main, **main.context_settings)
    found: Document = serve.make_context("serve", words[1:], parent=parent).params
    return found


def unit_value(name: str) -> str:
    (value,) = re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)
    return str(value)


def test_the_unit_starts_the_server_and_opens_the_store_read_only() -> None:
    program, *words = unit_value("ExecStart").split()
    assert program == "/opt/rocketlens/bin/rocketlens"
    (store,) = map(str, options_of(words)["stores"])
    assert store == unit_value("ReadOnlyPaths") == unit_value("RequiresMountsFor")
    assert words[words.index("--state-dir") + 1] == f"/var/lib/{unit_value('StateDirectory')}"
    assert unit_value("ProtectSystem") == "strict"


def objects() -> dict[str, Document]:
    return {each["kind"]: each for each in yaml.safe_load_all(MANIFEST.read_text())}


@pytest.mark.parametrize("version", ["1.31", "1.37"])
def test_every_object_of_the_manifest_fits_the_schema_of_kubernetes(version: str) -> None:
    assert set(objects()) == {"Service", "StatefulSet"}
    for each in objects().values():
        kubernetes_validate.validate(each, version, strict=True)


def test_the_manifest_mounts_the_store_read_only_and_probes_what_the_server_answers() -> None:
    pod = objects()["StatefulSet"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    options = options_of(container["args"])
    assert options
    mounts = {each["mountPath"]: each for each in container["volumeMounts"]}
    assert container["args"][1] == "/store"
    assert mounts["/store"]["readOnly"] is True
    (volume,) = (each for each in pod["spec"]["volumes"] if each["name"] == mounts["/store"]["name"])
    assert volume["persistentVolumeClaim"]["readOnly"] is True
    assert mounts[container["args"][container["args"].index("--state-dir") + 1]]["name"] == "state"
    paths = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "readiness", "liveness")}
    assert paths == {"startup": "/readyz", "readiness": "/readyz", "liveness": "/healthz"}
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    for name, option in (("remoting", "--listen"), ("http", "--http")):
        assert container["args"][container["args"].index(option) + 1].endswith(f":{ports[name]}")
    service = objects()["Service"]["spec"]
    assert {each["targetPort"] for each in service["ports"]} == set(ports)
    assert service["selector"] == pod["metadata"]["labels"]


def test_the_images_health_check_is_that_of_compose() -> None:
    (line,) = (each for each in dockerfile_stages()["server"] if each.startswith("HEALTHCHECK "))
    wanted = yaml.safe_load(COMPOSE_FILE.read_text())["services"]["rocketlens"]["healthcheck"]["test"]
    assert json.loads(line.partition(" CMD ")[2] or line.partition("CMD ")[2]) == wanted[1:]


def asks_for_a_login(words: list[str], files: str) -> bool:
    """Whether arguments of `serve` have the page ask, by TLS, with accounts and certificate from a directory."""
    options = options_of(words)
    paths = {str(options["acl"]), str(options["tls_cert"])}
    return options["http_auth"] == "basic" and options["http_tls"] and all(each.startswith(files) for each in paths)


def test_the_login_of_compose_fits_its_schema_and_adds_to_the_command() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE_LOGIN)]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    service = load({}, COMPOSE_LOGIN)["services"]["rocketlens"]
    without = load({})["services"]["rocketlens"]["command"]
    assert service["command"][: len(without)] == without
    (volume,) = service["volumes"]
    assert volume == "${LOGIN:?a directory with acl.yml and server.pem}:/login:ro"
    assert asks_for_a_login(service["command"], "/login/")
    assert not asks_for_a_login([*service["command"], "--http-auth", "page"], "/login/")


def rules() -> list[Document]:
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    found: list[Document] = group["rules"]
    return found


def test_every_alert_has_a_severity_a_summary_and_a_runbook_that_is_there() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names)) >= 10
    for rule in rules():
        assert set(rule) - {"for"} == {"alert", "expr", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert set(rule["annotations"]) == {"summary", "runbook_url"}
        page, _, anchor = rule["annotations"]["runbook_url"].removeprefix(RUNBOOK).partition("/#")
        headings = re.findall(r"^### (.+)$", (ROOT / f"{page}.md").read_text(), re.MULTILINE)
        assert anchor == rule["alert"].lower()
        assert rule["alert"] in headings


def test_every_metric_label_and_value_of_an_alert_is_one_that_the_server_exposes() -> None:
    """Labels and names are those of the families, which tests/broker/web/test_metrics_store.py finds in answers."""
    text = (ROOT / "docs" / "metrics.md").read_text()
    rows = {family.full_name: set(family.labels) for family in FAMILIES}
    named = {name for rule in rules() for name in re.findall(r"\brocketlens_\w+", rule["expr"])}
    assert len(named) >= 9
    assert named <= set(rows)
    for rule in rules():
        metrics = re.findall(r"\brocketlens_\w+", rule["expr"])
        known = {"instance", "job"}.union(*(rows[name] for name in metrics))
        compared = re.findall(r"(\w+)=~?\"([^\"]+)\"", rule["expr"])
        shown = re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])
        assert {name for name, _ in compared} | set(shown) <= known, rule["alert"]
        values = {value for name, values in compared if name != "job" for value in values.split("|")}
        assert all(f"`{value}`" in text or value in ResponseCode.__members__ for value in values), rule["alert"]
