"""The official Java broker 5.5.0 as a child process on a store directory.

Its configuration is the broker's own default but for addresses, the store's path, and the two settings that could
delete old files under it. JVM options are those of the official ``runbroker.sh`` with a smaller heap and without
AlwaysPreTouch, which would only make the memory figure meaningless.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from benchmarks.remoting import Peer
from benchmarks.server_process import ServerProcess, free_port
from tests.interop.jars import jars, tool

VERSION = "5.5.0"
HEAP = "2g"
JVM_OPTIONS = (
    *("-server", f"-Xms{HEAP}", f"-Xmx{HEAP}", "-XX:+UseG1GC", "-XX:G1HeapRegionSize=16m", "-XX:G1ReservePercent=25"),
    *("-XX:InitiatingHeapOccupancyPercent=30", "-XX:SoftRefLRUPolicyMSPerMB=0", "-XX:-OmitStackTraceInFastThrow"),
    *("-XX:MaxDirectMemorySize=15g", "-XX:-UseLargePages"),
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
)
_GET_BROKER_RUNTIME_INFO = 28


class JavaBroker:
    """A context manager: the broker answers inside the block and is stopped cleanly at its end."""

    def __init__(self, store: Path, jars: Path, settings: Mapping[str, object] | None = None) -> None:
        self._store, self._jars, self._settings = store, jars, settings or {}
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self.process: ServerProcess

    def __enter__(self) -> "JavaBroker":
        self._scratch = tempfile.TemporaryDirectory(prefix="rocketlens-java-broker-")
        home = Path(self._scratch.name)
        port = free_port(neighbours=(-2, 1))  # the broker also listens on port - 2 (VIP) and port + 1 (replication)
        configuration = home / "broker.conf"
        configuration.write_text("".join(f"{key}={value}\n" for key, value in self._all_settings(port).items()))
        self.process = ServerProcess(
            self._command(home, configuration), port, log=home / "out.log", environment=_environment(home)
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.stop(timeout_seconds=120)
        if self._scratch:
            self._scratch.cleanup()

    def wait_until_dispatched(self, end_of_log: int, timeout_seconds: float = 600) -> None:
        """Returns once queues and index cover the log up to ``end_of_log``."""
        self.process.wait_until_open(timeout_seconds)
        with Peer(self.process.port, timeout_seconds=timeout_seconds) as peer:

            def is_dispatched() -> bool:
                header, body = peer.call(_GET_BROKER_RUNTIME_INFO)
                if header["code"] != 0:  # NoSuchElementException until its statistics have their first sample
                    return False
                table = json.loads(body)["table"]
                return int(table["commitLogMaxOffset"]) >= end_of_log and int(table["dispatchBehindBytes"]) == 0

            self.process.wait_for(is_dispatched, timeout_seconds, f"dispatch of the log up to {end_of_log}")

    def _all_settings(self, port: int) -> dict[str, object]:
        return {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "brokerId": 0,
            "brokerIP1": "127.0.0.1",
            "listenPort": port,
            "storePathRootDir": self._store,
            "fileReservedTime": 1_000_000,
            "cleanFileForciblyEnable": "false",
            **self._settings,
        }

    def _command(self, home: Path, configuration: Path) -> list[str]:
        return [
            *(tool("java"), *JVM_OPTIONS, f"-Duser.home={home}", f"-Djava.io.tmpdir={home}", "-cp", f"{self._jars}/*"),
            *("org.apache.rocketmq.broker.BrokerStartup", "-c", str(configuration)),
        ]


class JavaNameServer:
    """The official name server, for clients of the Java broker; the same context manager."""

    def __init__(self, jars: Path) -> None:
        self._jars = jars
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self.process: ServerProcess

    def __enter__(self) -> "JavaNameServer":
        self._scratch = tempfile.TemporaryDirectory(prefix="rocketlens-java-name-server-")
        home = Path(self._scratch.name)
        port = free_port(neighbours=(1,))
        configuration = home / "namesrv.conf"
        configuration.write_text(f"bindAddress=127.0.0.1\nlistenPort={port}\nkvConfigPath={home}/kvConfig.json\n")
        command = [
            *(tool("java"), "-Xms128m", "-Xmx256m", f"-Duser.home={home}", "-cp", f"{self._jars}/*"),
            *("org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(configuration)),
        ]
        self.process = ServerProcess(command, port, log=home / "out.log", environment=_environment(home))
        self.process.wait_until_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.stop()
        if self._scratch:
            self._scratch.cleanup()


def _environment(home: Path) -> dict[str, str]:
    """Ours, with ROCKETMQ_HOME, and without a name server that somebody may have set."""
    environment = {key: value for key, value in os.environ.items() if key != "NAMESRV_ADDR"}
    return {**environment, "ROCKETMQ_HOME": str(home)}


def java_version() -> str:
    """The first line of ``java -version``."""
    return subprocess.run([tool("java"), "-version"], capture_output=True, text=True, check=True).stderr.splitlines()[0]


def find_jars(given: Path | None) -> Path:
    """The folder given, else the official jars as the interop tests fetch them by Maven."""
    if given:
        return given
    return jars(VERSION)
