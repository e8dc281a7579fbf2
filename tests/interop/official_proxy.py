"""The official proxy in cluster mode as a process on loopback, and the official client that speaks gRPC to it."""

import contextlib
import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from benchmarks.server_process import free_port
from interop.jars import POM, SERVER_VERSION, cached, compiled, copy_jars
from interop.official_broker import QUICK_JVM, OfficialProcess, home_below, loopback_only, running, start_official
from needed_tools import tool

HERE = Path(__file__).parent
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
