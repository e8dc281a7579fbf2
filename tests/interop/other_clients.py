"""Push consumers on Node and in Go, and the official proxy with the client that speaks gRPC to it."""

import base64
import contextlib
import hashlib
import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from benchmarks.server_process import free_port
from interop.jars import GO_ENVIRONMENT, GO_FLAGS, POM, SERVER_VERSION, ClientUnavailable, cached, compiled, copy_jars
from interop.official_broker import QUICK_JVM, OfficialProcess, home_below, loopback_only, running, start_official
from needed_tools import tool

HERE = Path(__file__).parent
FILES = {"node": ("package.json", "package-lock.json"), "go": ("go.mod", "go.sum", "main.go")}
"""What is installed or built of each language depends on these."""

BUILD_SECONDS = 600
STOP_SECONDS = 60


@dataclass
class OtherConsumers:
    process: "subprocess.Popen[bytes]"
    output: Path
    errors: Path

    def messages(self, group):
        lines = self.output.read_bytes().split(b"\n")[:-1]
        told = [json.loads(line) for line in lines]
        return [message | {"body": base64.b64decode(message["body"])} for message in told if message["group"] == group]

    def stop(self) -> None:
        """Lets it take leave; a process that fails or hangs is an error."""
        self.process.stdin.close()
        assert self.process.wait(STOP_SECONDS) == 0, self.errors.read_text()[-4000:]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def other_consumers(language, name_server, topic, groups, work):
    """Consumers of a topic, one for each group, each with its expression type and expression; killed at the end."""
    start, environment = program(language)
    command = [*start, name_server, topic]
    for group, (expression_type, expression) in groups.items():
        command += [group, expression_type, expression]
    output, errors = work / f"{language}.out", work / f"{language}.err"
    with output.open("wb") as out, errors.open("wb") as err:
        how = {"cwd": work, "env": os.environ | environment}
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=err, **how)
    running = OtherConsumers(process, output, errors)
    try:
        yield running
    finally:
        running.kill()
        if process.stdin is not None:
            process.stdin.close()


def program(language: str) -> tuple[list[str], dict[str, str]]:
    """The command that runs the consumers of a language, without arguments, and what its environment needs."""
    checksum = hashlib.sha256(b"".join((HERE / language / name).read_bytes() for name in FILES[language])).hexdigest()
    name = f"{language}-{checksum[:16]}"
    if language == "node":
        node = tool("node")
        modules = cached(name, _install_node) / "node_modules"
        return [node, str(HERE / "node" / "consume.js")], {"NODE_PATH": str(modules)}
    return [str(cached(name, _build_go) / "consume")], {}


def _install_node(folder: Path) -> None:
    folder.mkdir()
    for name in FILES["node"]:
        shutil.copy(HERE / "node" / name, folder / name)
    npm = tool("npm")
    run_tool([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], folder)


def _build_go(folder: Path) -> None:
    folder.mkdir()
    go = tool("go")
    run_tool([go, "build", "-mod=readonly", *GO_FLAGS, "-o", str(folder / "consume"), "."], HERE / "go", GO_ENVIRONMENT)


def run_tool(command, folder, environment=MappingProxyType({})) -> None:
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "timeout": BUILD_SECONDS}
    outcome = subprocess.run(command, cwd=folder, env=os.environ | environment, check=False, **streams)
    if outcome.returncode != 0:
        raise ClientUnavailable(f"{' '.join(command[:2])} failed:\n{outcome.stdout[-3000:]}")


CLIENT_SECONDS = 120


@dataclass(frozen=True)
class OfficialProxy:
    """A proxy: `remoting` is what clients take for a name server, `grpc` what those of gRPC connect to."""

    process: OfficialProcess
    remoting: str
    grpc: str


@contextlib.contextmanager
def official_proxy(work, name_server, *, cluster="DefaultCluster"):
    """A proxy before the brokers of a cluster; ``work`` gets its configuration and logs."""
    home = home_below(work / "proxy")
    remoting, grpc = free_port(), free_port()
    configuration = home / "conf" / "rmq-proxy.json"
    settings = {
        "rocketMQClusterName": cluster,
        "namesrvAddr": name_server,
        "proxyMode": "CLUSTER",
        "localServeAddr": "127.0.0.1",
        "remotingListenPort": remoting,
        "grpcServerPort": grpc,
        # The JVM's own sockets, which `loopback_only` is asked for.
        "enableGrpcEpoll": False,
    }
    configuration.write_text(json.dumps(settings))
    main, jars = "org.apache.rocketmq.proxy.ProxyStartup", [cached(f"proxy-{SERVER_VERSION}", bring_proxy)]
    how = {"more_jars": jars, "environment": loopback_only()}
    process = start_official(main, ["-pc", str(configuration)], home, **how)
    started = OfficialProcess(process, ("127.0.0.1", remoting), home)
    with running(started, lambda: b"startup successfully" in (home / "output.log").read_bytes()):
        yield OfficialProxy(started, f"127.0.0.1:{remoting}", f"127.0.0.1:{grpc}")


def receive_by_grpc(proxy: OfficialProxy, group: str, topic: str, work: Path) -> str:
    """What one call of a gRPC `SimpleConsumer` comes to: `received N`, or what it throws."""
    jars = cached("grpc-client-5.0.8", lambda folder: copy_jars(HERE / "grpc-pom.xml", folder, "-Pclient"))
    classes = compiled(jars, HERE / "Receiving.java")
    command = [tool("java"), *QUICK_JVM, f"-Duser.home={work}", "-cp", f"{jars}/*{os.pathsep}{classes}", "Receiving"]
    command += [proxy.grpc, group, topic]
    outcome = subprocess.run(command, capture_output=True, text=True, check=True, timeout=CLIENT_SECONDS)
    return outcome.stdout.strip()


def bring_proxy(folder: Path) -> None:
    copy_jars(POM, folder, f"-Drocketmq.version={SERVER_VERSION}", "-Pproxy")
