"""The official RocketMQ jars of one version, brought once by Maven into a cache folder outside the repository."""

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from needed_tools import tool

POM = Path(__file__).with_name("pom.xml")
SERVER_VERSION = "5.5.0"
NEWEST_BROKER_VERSION = "5.5.1"
"""A broker alone: no client, tools or name server of this version are published where Maven looks."""

OLD_CLIENT_VERSION = "4.9.8"
OLD_BROKER_VERSION = "4.9.7"
"""The newest broker 4.x that Maven finds: of 4.9.8 client, tools and store were published alone."""

LIBRARY_VERSIONS = {NEWEST_BROKER_VERSION: SERVER_VERSION}
"""Broker versions beside which all but broker, store, remoting, common and tiered-store is of another version.

Of 5.5.1 Maven finds these five modules and no others.
"""

QUICK_JAVA = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""For a Java of a few seconds: what it compiles well is not worth it."""

GO_FLAGS = ("-trimpath", "-ldflags=-w", "-gcflags=all=-N -l -dwarf=false")
GO_ENVIRONMENT = {"CGO_ENABLED": "0"}
"""How programs of the tests are built with Go: without what makes them fast or easy to debug, which costs more."""


class ClientUnavailable(RuntimeError):
    """A client could not be built here; the text says why."""


class JarsUnavailable(ClientUnavailable):
    """Maven could not resolve the jars; the text says why."""


def jars(version: str = SERVER_VERSION) -> Path:
    """The folder that holds the jars of ``version`` with all they depend on.

    Brings broker, name server, tools and client; of 4.x tools and client, but where it is `OLD_BROKER_VERSION`; what of
    5.5.1 says `LIBRARY_VERSIONS`. The folder is ``$ROCKETLENS_JARS/<version>`` (default
    ``~/.cache/rocketlens/jars/<version>``), filled on the first call by whichever process comes first. Raises
    `JarsUnavailable`.
    """
    return cached(version, lambda folder: _download(version, folder))


def store_jars(version: str = SERVER_VERSION) -> Path:
    """The folder of jars with which a broker of a version keeps its store, filled as that of `jars`."""
    if not version.startswith("4."):
        return jars(version)
    return cached(f"store-{version}", lambda folder: copy_jars(POM, folder, f"-Drocketmq.version={version}", "-Pstore"))


def compiled(jars: Path, *sources: Path) -> Path:
    """The folder with the classes of Java sources, compiled once against a folder of jars by the Java that is here."""
    digest = hashlib.sha256(f"{java_identity()}\n{jars}\n".encode())
    for source in sources:
        digest.update(source.read_bytes())
    quick = [f"-J{option}" for option in QUICK_JAVA]
    command = [tool("javac"), *quick, "-proc:none", "-cp", f"{jars}/*", *map(str, sources)]
    return cached(
        f"classes-{jars.name}-{digest.hexdigest()[:16]}",
        lambda folder: subprocess.run([*command, "-d", str(folder)], check=True),
    )


def java_identity() -> str:
    """What differs between two Javas: path, size and time of the one that `tool` finds."""
    java = Path(tool("java")).resolve()
    return f"{java} {java.stat().st_size} {java.stat().st_mtime_ns}"


def cached(name, fill) -> Path:
    """The folder ``name`` of the cache, filled when it is not there yet; one that exists is complete.

    ``fill`` gets a neighbour folder that does not exist, makes it, and raises when it cannot.
    """
    configured = os.environ.get("ROCKETLENS_JARS")
    folder = (Path(configured) if configured else Path.home() / ".cache" / "rocketlens" / "jars") / name
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            partial = folder.with_name(f".{name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            fill(partial)
            partial.rename(folder)
    return folder


def copy_jars(pom: Path, folder: Path, *options: str) -> None:
    """Have Maven copy what a POM names, and all that depends on, into a folder; raises `JarsUnavailable`."""
    command = [tool("mvn"), "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", *options]
    tool("java")
    outcome = subprocess.run(
        [*command, f"-DoutputDirectory={folder}"],
        env=os.environ | {"MAVEN_OPTS": " ".join((os.environ.get("MAVEN_OPTS", ""), *QUICK_JAVA))},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if outcome.returncode != 0 or not any(folder.glob("*.jar")):
        raise JarsUnavailable(f"Maven brought no jars ({' '.join(options)}):\n{outcome.stdout[-3000:]}")


def build_go(module: str, folder: Path) -> None:
    go = tool("go")
    folder.mkdir()
    environment = os.environ | GO_ENVIRONMENT | {"GOBIN": str(folder)}
    command = [go, "install", *GO_FLAGS, module]
    outcome = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if outcome.returncode != 0:
        raise ClientUnavailable(f"go install {module} failed:\n{outcome.stderr[-3000:]}")


def _download(version: str, folder: Path) -> None:
    options = [f"-Drocketmq.version={version}"]
    if version in LIBRARY_VERSIONS:
        options.append(f"-Drocketmq.library.version={LIBRARY_VERSIONS[version]}")
    if not version.startswith("4.") or version == OLD_BROKER_VERSION:
        options.append("-Pserver")
    copy_jars(POM, folder, *options)
