"""Official RocketMQ name servers and brokers as processes on free ports of a loopback address.

    with official_pair(store, work) as pair:
        ask(pair.broker.address, 33, {"offset": "0"})

Leaving a ``with`` block kills the process, which is quick and right for a copy of a store that nobody reads afterwards;
for a store that is kept call `OfficialProcess.stop` before: SIGTERM, upon which a broker takes some 17 s to close. What
the process printed and logged is in `OfficialProcess.log_text` and is part of every failure message.
"""

import contextlib
import hashlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.server_process import free_port
from build_backend.compilers import ZIG, find_compiler
from interop.jars import QUICK_JAVA, SERVER_VERSION, cached, jars, java_identity
from interop.wire import ask
from needed_tools import tool

GET_BROKER_CONFIG = 26
GET_BROKER_CLUSTER_INFO = 106
GET_NAMESRV_CONFIG = 319
START_SECONDS = 300
STOP_SECONDS = 60

G1_PROPERTIES = {
    "mappedFileSizeCommitLog": "131072", "mappedFileSizeConsumeQueue": "2000", "maxHashSlotNum": "97",
    "maxIndexNum": "150", "enablePropertyFilter": "true", "traceTopicEnable": "true"
}  # fmt: skip
"""The broker properties the golden store g1 was written with; a broker that opens it needs the same sizes."""

STOCK_INTERVALS = {"transactionMetricFlushInterval": "10000", "timerFlushIntervalMs": "1000"}
"""What a broker has in milliseconds where nothing is configured; see `CALM_INTERVALS`."""

CALM_INTERVALS = {"transactionMetricFlushInterval": "200", "timerFlushIntervalMs": "10000"}
"""What brokers of tests have instead, since a stock one keeps half a core busy.

Until the first flush of its transaction metrics a thread of it looks at the clock without a pause, and each flush of
the timers goes over the whole wheel, in which hardly any test has a timer; a broker that is stopped flushes it anyway.
"""

STOCK_FLOW_CONTROL = {"brokerFastFailureEnable": "true", "osPageCacheBusyTimeOutMills": "1000"}
"""What a broker has where nothing is configured; see `NO_FLOW_CONTROL`."""

NO_FLOW_CONTROL = {"brokerFastFailureEnable": "false", "osPageCacheBusyTimeOutMills": "600000"}
"""What brokers of tests have instead: they answer late, where a stock one refuses what it has not come to in 200 ms.

Producers try again then, others do not (SYSTEM_BUSY, `[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control`), and on a
busy machine it happens to any request.
"""

OPEN_MODULES = [
    *(f"--add-exports=java.base/{package}=ALL-UNNAMED" for package in ("jdk.internal.ref", "sun.nio.ch")),
    *(
        f"--add-opens=java.base/{package}=ALL-UNNAMED"
        for package in ("java.nio", "sun.nio.ch", "java.lang", "java.util")
    ),
]
WITHOUT_TLS = "-Dtls.server.mode=disabled"
"""No server here is asked by TLS; else each makes a key and a certificate of its own first: half of its start."""

WITH_TLS = "-Dtls.server.mode=permissive"

QUICK_JVM = [*QUICK_JAVA, "-XX:-UsePerfData"]
SMALL_JVM = ["-Xms128m", "-Xmx512m", *QUICK_JVM]


class OfficialProcess:
    """A running Java process of the official distribution: its address, its logs, and how to end it."""

    def __init__(self, process: "subprocess.Popen[bytes]", address: tuple[str, int], logs: Path) -> None:
        self.process = process
        self.address = address
        self._logs = logs

    @property
    def text_address(self) -> str:
        """The address as RocketMQ's options take it: ``host:port``, IPv6 in brackets."""
        host, port = self.address
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def log_text(self, limit: int = 4000) -> str:
        paths = sorted(self._logs.rglob("*.log"))
        texts = [f"--- {path.name}\n{path.read_text(errors='replace')[-limit:]}" for path in paths]
        return "\n".join(texts)

    def stop(self) -> None:
        """SIGTERM, then waits until the store is closed; a process that hangs is killed and reported."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        if self.process.poll() is not None:
            return
        self.process.send_signal(number)
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise RuntimeError(f"did not stop within {STOP_SECONDS} s\n{self.log_text()}") from None
        finally:
            # 12 MB that RocksDB unpacks at each start, and removes only if it is not killed.
            for library in self._logs.glob("librocksdbjni*"):
                library.unlink()


@dataclass(frozen=True)
class OfficialPair:
    name_server: OfficialProcess
    broker: OfficialProcess


@contextlib.contextmanager
def official_name_server(
    work, *, properties=None, host="127.0.0.1", port=None, version=SERVER_VERSION, classes=None, tls=False
):
    """A name server; ``work`` gets its configuration and logs, ``properties`` are further lines of the former.

    ``classes`` are options of the JVM instead of those of `class_archive`.
    """
    address = (host, free_port(host=host) if port is None else port)
    home = home_below(work / "namesrv")
    configuration = home / "namesrv.conf"
    settings = {"bindAddress": host, "listenPort": str(address[1]), "kvConfigPath": f"{home}/kvConfig.json"}
    settings |= properties or {}
    configuration.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    main, arguments = "org.apache.rocketmq.namesrv.NamesrvStartup", ["-c", str(configuration)]
    process = start_official(main, arguments, home, version, classes, tls=tls)
    started = OfficialProcess(process, address, home)
    with running(started, lambda: ask(address, GET_NAMESRV_CONFIG).code == 0):
        yield started


@contextlib.contextmanager
def official_broker(
    store,
    work,
    *,
    properties=None,
    name_server=None,
    host="127.0.0.1",
    port=None,
    version=SERVER_VERSION,
    classes=None,
    files=None,
    asked_with=None,
    tls=False,
):
    """A broker over the store directory ``store`` (made when missing; the broker writes in it), ready to answer.

    ``properties`` are broker.conf lines, by default those of g1; ``port`` a fixed port instead of a free one;
    ``classes`` as for `official_name_server`. ``files`` of its folder ``conf`` are written before; ``asked_with`` are
    the fields, signed, by which one with accounts answers. With ``tls`` it answers by TLS too.
    """
    address = (host, free_port((-2,), host) if port is None else port)
    home = home_below(work / "broker")
    for name, text in (files or {}).items():
        (home / "conf" / name).write_text(text)
    settings = _broker_settings(store, address, name_server) | dict(G1_PROPERTIES if properties is None else properties)
    configuration = home / "broker.conf"
    configuration.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    main, arguments = "org.apache.rocketmq.broker.BrokerStartup", ["-c", str(configuration)]
    process = start_official(main, arguments, home, version, classes, tls=tls)

    def is_ready() -> bool:
        if ask(address, GET_BROKER_CONFIG, asked_with).code != 0:
            return False
        wanted = f'"{settings["brokerName"]}"'.encode()
        return name_server is None or wanted in ask(name_server.address, GET_BROKER_CLUSTER_INFO).body

    with running(OfficialProcess(process, address, home), is_ready) as started:
        yield started


@contextlib.contextmanager
def official_pair(store, work, *, properties=None, host="127.0.0.1", port=None):
    with (
        official_name_server(work, host=host) as name_server,
        official_broker(store, work, properties=properties, name_server=name_server, host=host, port=port) as broker,
    ):
        yield OfficialPair(name_server, broker)


def class_archive(version: str = SERVER_VERSION) -> list[str]:
    """Options that give a JVM the classes of official servers as one laid them out in memory that had loaded them.

    Finding, verifying and laying them out is a third of what a broker's start costs. The class path must begin with the
    jars of that version. The archive lies beside them; the first call starts both servers to see what they load. A JVM
    checks that an archive is of its own build and of these very jars, and goes without where it is not. Other versions
    are started too seldom for one to be worth it.
    """
    if version != SERVER_VERSION:
        return []
    known = f"{java_identity()} {jars(version)} {jars(version).stat().st_mtime_ns}"
    name = f"class-archive-{version}-{hashlib.sha256(known.encode()).hexdigest()[:16]}"
    return [f"-XX:SharedArchiveFile={cached(name, _archive_classes) / 'classes.jsa'}", "-Xlog:cds=off"]


def _archive_classes(folder: Path) -> None:
    folder.mkdir()
    lists = [folder / f"{name}.classes" for name in ("namesrv", "broker", "all")]
    noted = [[f"-XX:DumpLoadedClassList={path}"] for path in lists]
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        with official_name_server(work, classes=noted[0]), official_broker(work / "store", work, classes=noted[1]):
            pass
    loaded = {line for path in lists[:2] for line in path.read_text().splitlines()}
    lists[2].write_text("".join(f"{line}\n" for line in sorted(loaded)))
    dump = ["-Xshare:dump", f"-XX:SharedClassListFile={lists[2]}", f"-XX:SharedArchiveFile={folder / 'classes.jsa'}"]
    with (folder / "dump.log").open("wb") as log:
        command = [tool("java"), *QUICK_JVM, *dump, "-cp", f"{jars()}/*"]
        subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False)


def _broker_settings(store: Path, address: tuple[str, int], name_server: OfficialProcess | None) -> dict[str, str]:
    host, port = address
    ip = f"[{host}]" if ":" in host else host
    settings = {
        # Recorded stores are old: none of their files may be cleaned away.
        "fileReservedTime": "1000000",
        "cleanFileForciblyEnable": "false",
        "brokerClusterName": "DefaultCluster",
        "brokerName": "broker-a",
        "brokerId": "0",
        "bindAddress": host,
        "brokerIP1": ip,
        "brokerIP2": ip,
        "listenPort": str(port),
        "haListenPort": str(free_port(host=host)),
        "storePathRootDir": str(store),
        "storePathCommitLog": str(store / "commitlog"),
    }
    named = {"namesrvAddr": name_server.text_address} if name_server else {}
    return settings | CALM_INTERVALS | NO_FLOW_CONTROL | named


def home_below(path: Path) -> Path:
    """A fresh ``rocketmq.home.dir`` that is ``user.home`` as well: logs land under it and nowhere else."""
    number = 0
    while (home := path.with_name(f"{path.name}-{number}")).exists():
        number += 1
    (home / "conf").mkdir(parents=True)
    return home


def start_official(
    main_class, arguments, home, version=SERVER_VERSION, classes=None, *, more_jars=(), environment=None, tls=False
) -> "subprocess.Popen[bytes]":
    """A process of the official distribution; `more_jars` are folders behind the one of its version.

    Servers 4.x know no address to listen on, and get `loopback_only`; and they start with their configuration of logs
    alone, which here is empty.
    """
    if is_old := version.startswith("4."):
        for name in ("namesrv", "broker"):
            (home / "conf" / f"logback_{name}.xml").write_text("<configuration/>")
    command = [tool("java"), *SMALL_JVM, *(class_archive(version) if classes is None else classes)]
    command += [WITH_TLS if tls else WITHOUT_TLS, *OPEN_MODULES]
    command += [f"-Drocketmq.home.dir={home}", f"-Duser.home={home}", f"-Djava.io.tmpdir={home}"]
    command += ["-cp", os.pathsep.join(f"{folder}/*" for folder in (jars(version), *more_jars)), main_class, *arguments]
    with (home / "output.log").open("wb") as output:
        environment = os.environ | (loopback_only() if is_old else {}) | dict(environment or {})
        streams = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT}
        return subprocess.Popen(command, **streams, cwd=home, env=environment)


def loopback_only() -> dict[str, str]:
    """The environment of a server that would listen on every address: that of `loopback_only.c`, compiled once."""
    source = Path(__file__).with_name("loopback_only.c")
    compiler = find_compiler()
    command = shlex.split(compiler) if compiler else [sys.executable, "-m", ZIG, "cc"]

    def compile_it(folder: Path) -> None:
        folder.mkdir()
        subprocess.run([*command, "-shared", "-fPIC", "-o", str(folder / "loopback_only.so"), str(source)], check=True)

    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    library = cached(f"loopback-only-{digest}", compile_it) / "loopback_only.so"
    return {"LD_PRELOAD": str(library), "JAVA_TOOL_OPTIONS": "-Djava.net.preferIPv4Stack=true"}


@contextlib.contextmanager
def running(started, is_ready):
    try:
        _wait_until_ready(started, is_ready)
        yield started
    finally:
        started.kill()


def _wait_until_ready(started, is_ready) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if started.process.poll() is not None:
            code = started.process.returncode
            raise RuntimeError(f"ended with exit code {code} instead of starting\n{started.log_text()}")
        with contextlib.suppress(OSError):
            if is_ready():
                return
        time.sleep(0.1)
    raise RuntimeError(f"does not answer on {started.text_address} after {START_SECONDS} s\n{started.log_text()}")
