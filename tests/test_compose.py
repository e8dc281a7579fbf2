"""docker-compose.yml fits the compose specification, and each service's own command starts what it says it starts."""

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import compose
from broker.config import ServeOptions
from broker.workers.supervisor import PATIENCE_SECONDS
from compose import COMPOSE_FILE, ROOT, STOP_SECONDS, Composition, dockerfile_stages, entry_point, image_environment
from interop.jars import jars
from interop.official_broker import CALM_INTERVALS, NO_FLOW_CONTROL, OPEN_MODULES, QUICK_JVM, WITHOUT_TLS, class_archive
from interop.wire import ask
from spark_classes import QUICK

VIEW_MESSAGE_BY_ID = 33
GET_ROUTE_INFO_BY_TOPIC = 105
GET_BROKER_CLUSTER_INFO = 106
START_SECONDS = 300
SERVICES = ("rocketlens", "namesrv", "broker", "spark-master", "spark-worker")

CLUSTER_JOB = """
import sys
from pyspark import SparkConf, SparkContext

def versions(_: int) -> tuple[str, str]:
    import numpy, storage
    return numpy.__version__, storage.__name__

conf = SparkConf().setMaster(sys.argv[1]).setAppName("versions").set("spark.driver.host", "127.0.0.1")
conf.set("spark.ui.enabled", "false").set("spark.executor.extraJavaOptions", sys.argv[2])
with SparkContext(conf=conf) as context:
    print(*context.parallelize([0], 1).map(versions).first())
"""


def wait_until(is_ready: Callable[[], bool], process: "subprocess.Popen[str]", log_text: Callable[[], str]) -> None:
    """Polls a condition until it holds; a process that ends first, or five minutes, fail the test."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, f"ended with exit code {process.returncode}\n{log_text()}"
        with contextlib.suppress(OSError):
            if is_ready():
                return
        time.sleep(0.1)
    pytest.fail(f"not ready after {START_SECONDS} s\n{log_text()}")


def schema_check(path: Path) -> Result:
    """Checks a file against the compose specification's schema, which check-jsonschema brings with it."""
    from check_jsonschema import main  # it takes long to import, and every process that collects tests has this module

    return CliRunner().invoke(main, ["--builtin-schema", "vendor.compose-spec", str(path)])


def test_the_file_fits_the_compose_specification() -> None:
    outcome = schema_check(COMPOSE_FILE)
    assert outcome.exit_code == 0, outcome.output


def test_stores_are_mounted_read_only_and_ports_published_on_the_loopback_address() -> None:
    mounts, ports = set(), set()
    for name, service in compose.load({})["services"].items():
        stores = [
            volume for volume in service.get("volumes", []) if "/store" in volume and "broker-store" not in volume
        ]
        assert all(volume.endswith(":/store:ro") for volume in stores), name
        assert all(entry.startswith("127.0.0.1:") for entry in service["ports"]), name
        mounts |= {name} if stores else set()
        ports |= {name} if service["ports"] else set()
    assert "rocketlens" in mounts
    assert ports == set(SERVICES)


def test_the_images_have_what_they_copy_and_run_as_an_unprivileged_user() -> None:
    stages = dockerfile_stages()
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for line in (
        line for stage in stages.values() for line in stage if line.startswith("COPY ") and "--from" not in line
    ):
        for name in line.split()[1:-1]:
            assert (ROOT / name).exists(), line
            assert f"!{name}" in ignored or ("!requirements*.lock" in ignored and name.endswith(".lock")), line
    for target in ("server", "spark"):
        assert [line for line in stages[target] if line.startswith("USER")] == ["USER rocketlens"]
    assert list(stages)[-1] == "server"


def test_the_image_by_itself_starts_the_server_as_compose_does(tmp_path: Path) -> None:
    (line,) = [line for line in dockerfile_stages()["server"] if line.startswith("CMD")]
    command = json.loads(line.split(maxsplit=1)[1])
    service = compose.load({})["services"]["rocketlens"]
    advertised = service["command"].index("--advertise")
    assert command == service["command"][:advertised] + service["command"][advertised + 2 :]
    assert entry_point(service) == ["rocketlens"]


def test_our_server_serves_the_mounted_store_and_knows_its_health(tmp_path: Path, g1_store: Path) -> None:
    composition = Composition(tmp_path, {"STORE": str(g1_store)})
    address, http = ("127.0.0.1", composition.port(10911)), f"127.0.0.1:{composition.port(9180)}"
    healthcheck = composition.healthcheck("rocketlens")
    environment = image_environment() | {"http_proxy": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}
    assert subprocess.run(healthcheck, env=environment, capture_output=True, check=False).returncode != 0
    with composition.running("rocketlens") as server:
        assert server.stdout is not None
        line = server.stdout.readline()
        served = f"rocketlens: serving {g1_store} on 127.0.0.1:{address[1]}; HTTP at {http}\n"
        assert line == served, composition.log_text("rocketlens")
        assert subprocess.run(healthcheck, env=environment, capture_output=True, check=False).returncode == 0
        route = json.loads(ask(address, GET_ROUTE_INFO_BY_TOPIC, {"topic": "TopicTest"}).body)
        assert route["brokerDatas"][0]["brokerAddrs"] == {"0": f"127.0.0.1:{address[1]}"}
        assert ask(address, VIEW_MESSAGE_BY_ID, {"offset": "0"}).code == 0
        server.terminate()
        assert server.wait(STOP_SECONDS) == 0
    assert composition_grace_seconds(composition) > ServeOptions(g1_store).stop_timeout_seconds + PATIENCE_SECONDS
    assert list((tmp_path / "volume-state").iterdir())


def composition_grace_seconds(composition: Composition) -> float:
    """What compose gives our server to stop before it is killed."""
    return float(composition.services["rocketlens"]["stop_grace_period"].removesuffix("s"))


@pytest.mark.soak  # in each run: a pair without the file, tests/interop; the file itself, above
@pytest.mark.interop
def test_the_official_broker_registers_with_the_official_name_server(tmp_path: Path) -> None:
    version = compose.load({})["services"]["broker"]["image"].removeprefix("apache/rocketmq:")
    provided = {f"/home/rocketmq/rocketmq-{version}/lib": jars(version), "/tmp": tmp_path}
    composition = Composition(tmp_path, {}, provided=provided)
    composition.configs["broker.conf"]["content"] += "".join(
        f"{key}={value}\n" for key, value in (CALM_INTERVALS | NO_FLOW_CONTROL).items()
    )
    # What the image sets, and the options that a Java newer than the image's 8 needs.
    options = [*OPEN_MODULES, *QUICK_JVM, *class_archive(version), WITHOUT_TLS, f"-Duser.home={tmp_path}"]
    environment = {"ROCKETMQ_HOME": str(tmp_path), "JDK_JAVA_OPTIONS": " ".join(options)}
    name_server = ("127.0.0.1", composition.port(9876))
    with composition.running("namesrv", environment) as namesrv:
        wait_until(
            lambda: ask(name_server, GET_BROKER_CLUSTER_INFO).code == 0,
            namesrv,
            lambda: composition.log_text("namesrv"),
        )
        with composition.running("broker", environment) as broker:
            wait_until(
                lambda: b"broker-a" in ask(name_server, GET_BROKER_CLUSTER_INFO).body,
                broker,
                lambda: composition.log_text("broker"),
            )
            assert f"127.0.0.1:{composition.port(10921)}".encode() in ask(name_server, GET_BROKER_CLUSTER_INFO).body
            assert (tmp_path / "volume-broker-store" / "commitlog").is_dir()
            broker.kill()
            broker.wait()


@pytest.mark.interop
@pytest.mark.soak  # in each run: a cluster without the file, test_cluster.py; the file itself, above
@pytest.mark.parametrize("runs_job", [False, True])
def test_the_spark_worker_registers_and_its_executors_have_numpy_and_our_packages(
    tmp_path: Path, g1_store: Path, runs_job: bool
) -> None:
    composition = Composition(tmp_path, {"STORE": str(g1_store)})
    environment = {"SPARK_LOCAL_HOSTNAME": "127.0.0.1", "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOG_DIR": str(tmp_path)}
    options = " ".join(QUICK)
    environment |= dict.fromkeys(("SPARK_DAEMON_JAVA_OPTS", "SPARK_SUBMIT_OPTS"), options)
    with (
        composition.running("spark-master", environment) as master,
        composition.running("spark-worker", environment) as worker,
    ):
        wait_until(
            lambda: [one["state"] for one in master_state(composition)["workers"]] == ["ALIVE"],
            worker,
            lambda: composition.log_text("spark-master") + composition.log_text("spark-worker"),
        )
        assert master.poll() is None
        if runs_job:
            printed = run_cluster_job(tmp_path, f"spark://127.0.0.1:{composition.port(7077)}", options, environment)
            assert printed.split() == [np.__version__, "storage"]


def master_state(composition: Composition) -> dict[str, Any]:
    """What the Spark master's page says of its workers, as JSON; none as long as only the page for people is there."""
    with urllib.request.urlopen(f"http://127.0.0.1:{composition.port(8080)}/json/", timeout=60) as answer:
        state: dict[str, Any] = json.load(answer) if "json" in answer.headers["Content-Type"] else {"workers": []}
    return state


def run_cluster_job(folder: Path, master: str, options: str, environment: dict[str, str]) -> str:
    """Runs the job against a cluster, with options for the executors' JVMs, and returns what it printed."""
    script = folder / "cluster_job.py"
    script.write_text(CLUSTER_JOB)
    outcome = subprocess.run(
        [sys.executable, str(script), master, options],
        cwd=folder,
        env=image_environment() | environment | {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": os.fspath(ROOT)},
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr
    return outcome.stdout
