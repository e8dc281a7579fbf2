"""What is deployed fits its own tool or schema and names what there is: compose, images, units, manifests, alerts."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import kubernetes_validate
import pytest
import yaml
from click.testing import CliRunner

from benchmarks.server_process import ServerProcess, free_port
from broker.web._metrics_families import FAMILIES
from compose import COMPOSE_FILE, dockerfile_stages, image_environment, load
from interop.jars import cached
from interop.wire import ask
from protocol.codes import RequestCode, ResponseCode
from rocketlens.cli.main import main
from rocketlens.cli.serve import serve

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
COMPOSE_LOGIN = DEPLOY / "compose-login.yaml"
MANIFESTS = ("kubernetes.yaml", "kubernetes-server.yaml")
MOST_EXPOSED = 2.0
"""What `systemd-analyze security` may say at most; 0 is best, 10 is worst."""


def options_of(words):
    """What `rocketlens serve` makes of its arguments; a usage error fails the test."""
    assert words[0] == "serve"
    parent = click.Context(main, **main.context_settings)
    found = serve.make_context("serve", words[1:], parent=parent).params
    return found


@pytest.mark.parametrize("path", [COMPOSE_FILE, COMPOSE_LOGIN], ids=lambda path: path.name)
def test_a_file_of_compose_fits_the_specification(path: Path) -> None:
    from check_jsonschema import main  # it takes long to import, and every process that collects tests has this module

    outcome = CliRunner().invoke(main, ["--builtin-schema", "vendor.compose-spec", str(path)])
    assert outcome.exit_code == 0, outcome.output


def test_stores_are_mounted_read_only_ports_are_local_and_images_run_unprivileged() -> None:
    for name, service in load({})["services"].items():
        stores = [each for each in service.get("volumes", []) if "/store" in each and "broker-store" not in each]
        assert all(volume.endswith(":/store:ro") for volume in stores), name
        assert all(entry.startswith("127.0.0.1:") for entry in service["ports"]), name
    stages = dockerfile_stages()
    assert [line for target in ("server", "spark") for line in stages[target] if line.startswith("USER")] == (
        ["USER rocketlens"] * 2
    )
    copied = [line.split()[1:-1] for stage in stages.values() for line in stage if re.match("COPY (?!--from)", line)]
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for name in (name for names in copied for name in names):
        assert (ROOT / name).exists(), name
        assert f"!{name}" in ignored or ("!requirements*.lock" in ignored and name.endswith(".lock")), name


def test_the_image_and_the_login_serve_as_compose_does() -> None:
    service, with_login = load({})["services"]["rocketlens"], load({}, COMPOSE_LOGIN)["services"]["rocketlens"]
    command = service["command"]
    lines = {line.split()[0]: line for line in dockerfile_stages()["server"]}
    at = command.index("--advertise")
    assert json.loads(lines["CMD"].split(maxsplit=1)[1]) == command[:at] + command[at + 2 :]
    assert json.loads(lines["HEALTHCHECK"].partition("CMD ")[2]) == service["healthcheck"]["test"][1:]
    assert with_login["command"][: len(command)] == command
    options = options_of(with_login["command"])
    assert (options["http_auth"], options["http_tls"]) == ("basic", True)
    assert all(str(options[name]).startswith("/login/") for name in ("acl", "tls_cert"))


def test_our_server_serves_the_mounted_store_and_knows_its_health(tmp_path: Path, g1_store: Path) -> None:
    service = load({})["services"]["rocketlens"]
    port, http = free_port(), free_port()
    places = {"/store": str(g1_store), "/state": str(tmp_path), "0.0.0.0:10911": f"127.0.0.1:{port}"}
    places |= {"127.0.0.1:10911": f"127.0.0.1:{port}", "0.0.0.0:9180": f"127.0.0.1:{http}"}
    command = [
        str(Path(sys.executable).with_name("rocketlens")),
        *(places.get(word, word) for word in service["command"]),
    ]
    health = [word.replace("9180", str(http)) for word in service["healthcheck"]["test"][1:]]
    environment = image_environment() | {"http_proxy": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}

    def is_healthy() -> bool:
        return subprocess.run(health, env=environment, capture_output=True, check=False).returncode == 0

    assert not is_healthy()
    with ServerProcess(command, port, log=tmp_path / "log", directory=tmp_path) as server:
        server.wait_until_open()
        assert is_healthy()
        route = json.loads(ask(("127.0.0.1", port), RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TopicTest"}).body)
        assert route["brokerDatas"][0]["brokerAddrs"] == {"0": f"127.0.0.1:{port}"}


UNIT = DEPLOY / "rocketlens.service"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_verifies_the_unit_and_calls_it_hardened(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/rocketlens/bin/rocketlens ", "/bin/true "))

    def analyzed(*words: str) -> str:
        command = ["systemd-analyze", *words, str(unit)]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False).stdout

    assert analyzed("verify") == ""
    said = analyzed("security", "--offline=yes")
    exposure = re.search(r"Overall exposure level for \S+: ([0-9.]+)", said)
    assert float(exposure[1]) <= MOST_EXPOSED


def test_the_unit_starts_the_server_and_opens_the_store_read_only() -> None:
    values = dict(re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE))
    words = values["ExecStart"].split()[1:]
    (store,) = map(str, options_of(words)["stores"])
    assert store == values["ReadOnlyPaths"] == values["RequiresMountsFor"]
    assert words[words.index("--state-dir") + 1] == f"/var/lib/{values['StateDirectory']}"
    assert values["ProtectSystem"] == "strict"


def objects(name):
    return {each["kind"]: each for each in yaml.safe_load_all((DEPLOY / name).read_text())}


def settings(words: str) -> dict[str, str]:
    return dict(re.findall(r"--conf[ =](spark\.[\w.]+)=(\S+)", words))


def submitted() -> dict[str, str]:
    (container,) = objects("kubernetes.yaml")["Job"]["spec"]["template"]["spec"]["containers"]
    return settings(" ".join(container["command"]))


@pytest.mark.parametrize("name", MANIFESTS)
@pytest.mark.parametrize("version", ["1.31", "1.37"])
def test_every_object_fits_the_schema_of_kubernetes(version: str, name: str) -> None:
    assert "Service" in objects(name)
    for each in objects(name).values():
        kubernetes_validate.validate(each, version, strict=True)


def test_the_objects_of_the_job_name_one_another_and_the_page_shows_what_it_submits() -> None:
    found, given = objects("kubernetes.yaml"), submitted()
    pod, service = found["Job"]["spec"]["template"], found["Service"]
    namespace, account = (found[kind]["metadata"]["name"] for kind in ("Namespace", "ServiceAccount"))
    assert {each["metadata"]["namespace"] for kind, each in found.items() if kind != "Namespace"} == {namespace}
    assert service["spec"]["selector"] == pod["metadata"]["labels"]
    assert [pod["spec"]["serviceAccountName"]] == [each["name"] for each in found["RoleBinding"]["subjects"]]
    assert pod["spec"]["serviceAccountName"] == account
    assert found["RoleBinding"]["roleRef"]["name"] == found["Role"]["metadata"]["name"]
    ports = {each["name"]: str(each["port"]) for each in service["spec"]["ports"]}
    assert ports == {"driver": given["spark.driver.port"], "block-manager": given["spark.driver.blockManager.port"]}
    assert given["spark.driver.host"] == f"{service['metadata']['name']}.{namespace}.svc"
    assert given["spark.kubernetes.namespace"] == namespace
    assert given["spark.kubernetes.container.image"] == pod["spec"]["containers"][0]["image"]
    page = (ROOT / "docs" / "clusters.md").read_text().partition("## Kubernetes")[2].partition("\n## ")[0]
    assert given.pop("spark.kubernetes.driver.pod.name") == "$(POD_NAME)"
    assert settings(page) == given


def test_the_executor_that_spark_makes_of_the_settings_fits_the_schema_and_mounts_the_store(spark) -> None:
    """Rendered by Spark's own builder, without a cluster; its memory is that of the session of these tests."""
    virtual_machine = spark._jvm
    given, packages = submitted(), virtual_machine.org.apache.spark

    def module(package, name):
        return getattr(getattr(package, f"{name}$"), "MODULE$")

    configuration = spark._jsc.sc().conf().clone()
    for name, value in given.items():
        configuration.set(name, value)
    configuration.remove("spark.kubernetes.driver.pod.name")  # whose pod Spark would ask the cluster for
    nothing = module(virtual_machine.scala, "None")
    secret = module(packages.internal.config, "package").AUTH_SECRET_FILE_EXECUTOR()
    profile = module(packages.resource, "ResourceProfile").getOrCreateDefaultProfile(configuration)
    executor = packages.deploy.k8s.KubernetesExecutorConf(configuration, "app-1", "1", nothing, 0)
    security = packages.SecurityManager(configuration, nothing, secret)
    builder = packages.scheduler.cluster.k8s.KubernetesExecutorBuilder()
    made = builder.buildFromFeatures(executor, security, None, profile).pod()
    as_yaml = virtual_machine.io.fabric8.kubernetes.client.utils.Serialization.asYaml
    pod, container = yaml.safe_load(as_yaml(made.pod())), yaml.safe_load(as_yaml(made.container()))
    pod["spec"]["containers"] = [container]
    kubernetes_validate.validate(pod, "1.37", strict=True)
    (mounted,) = [each for each in container["volumeMounts"] if each["mountPath"] == "/mnt"]
    (volume,) = [each for each in pod["spec"]["volumes"] if each["name"] == mounted["name"]]
    assert volume["persistentVolumeClaim"]["claimName"] == "store"


def test_the_server_mounts_the_store_read_only_and_is_probed_where_it_answers() -> None:
    found = objects("kubernetes-server.yaml")
    pod, service = found["StatefulSet"]["spec"]["template"], found["Service"]["spec"]
    (container,) = pod["spec"]["containers"]
    args = container["args"]
    assert options_of(args)
    mounts = {each["mountPath"]: each for each in container["volumeMounts"]}
    assert (args[1], mounts["/store"]["readOnly"]) == ("/store", True)
    (volume,) = (each for each in pod["spec"]["volumes"] if each["name"] == mounts["/store"]["name"])
    assert volume["persistentVolumeClaim"]["readOnly"] is True
    assert mounts[args[args.index("--state-dir") + 1]]["name"] == "state"
    paths = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "readiness", "liveness")}
    assert paths == {"startup": "/readyz", "readiness": "/readyz", "liveness": "/healthz"}
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    for name, option in (("remoting", "--listen"), ("http", "--http")):
        assert args[args.index(option) + 1].endswith(f":{ports[name]}")
    assert {each["targetPort"] for each in service["ports"]} == set(ports)
    assert service["selector"] == pod["metadata"]["labels"]


ALERTS = DEPLOY / "alerts.yaml"
CASES = ROOT / "tests" / "data" / "alerts-test.yaml"
VERSION = "v0.305.0"
"""Of the Go module github.com/prometheus/prometheus: Prometheus 3.5."""


def rules():
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    found = group["rules"]
    return found


def build_promtool(folder: Path) -> None:
    folder.mkdir()
    for command in (
        ["go", "mod", "init", "promtool"],
        ["go", "get", f"github.com/prometheus/prometheus/cmd/promtool@{VERSION}"],
        ["go", "build", "-o", "promtool", "github.com/prometheus/prometheus/cmd/promtool"],
    ):
        subprocess.run(command, cwd=folder, check=True, timeout=1800)


@pytest.mark.soak  # promtool is built once, into the cache of the jars, which takes some minutes
def test_prometheus_accepts_the_rules_and_each_fires_when_it_must_and_not_before(tmp_path: Path) -> None:
    promtool = cached(f"promtool-{VERSION}", build_promtool) / "promtool"
    for path in (CASES, ALERTS):
        shutil.copy(path, tmp_path)
    for words in (["check", "rules", ALERTS.name], ["test", "rules", CASES.name]):
        ended = subprocess.run([promtool, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stdout + ended.stderr


def test_every_alert_has_a_case_a_runbook_and_metrics_labels_and_values_that_the_server_exposes() -> None:
    text = (ROOT / "docs" / "metrics.md").read_text()
    rows = {family.full_name: set(family.labels) for family in FAMILIES}
    tested = [each for case in yaml.safe_load(CASES.read_text())["tests"] for each in case["alert_rule_test"]]
    assert {each["alertname"] for each in tested if each["exp_alerts"]} == {rule["alert"] for rule in rules()}
    for rule in rules():
        page, _, anchor = rule["annotations"]["runbook_url"].partition("/rocketlens/")[2].partition("/#")
        assert anchor == rule["alert"].lower()
        assert f"### {rule['alert']}\n" in (ROOT / f"{page}.md").read_text()
        metrics = re.findall(r"\brocketlens_\w+", rule["expr"])
        assert set(metrics) <= set(rows)
        known = {"instance", "job"}.union(*(rows[name] for name in metrics))
        compared = re.findall(r"(\w+)=~?\"([^\"]+)\"", rule["expr"])
        shown = re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])
        assert {name for name, _ in compared} | set(shown) <= known, rule["alert"]
        values = {value for name, values in compared if name != "job" for value in values.split("|")}
        assert all(f"`{value}`" in text or value in ResponseCode.__members__ for value in values), rule["alert"]
