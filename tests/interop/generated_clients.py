"""Clients of the gRPC port in Java and Go, of stubs that protoc generates from our `.proto` files.

Stubs are made and compiled once into the cache that holds the jars, anew when a source of theirs changes.
"""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from interop.jars import GO_ENVIRONMENT, GO_FLAGS, QUICK_JAVA, cached, copy_jars, java_identity
from interop.other_clients import run_tool
from needed_tools import tool

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PROTOS = sorted(path.relative_to(ROOT) for path in (ROOT / "broker" / "grpc" / "messages").glob("*.proto"))
POM = HERE / "grpc-pom.xml"
GO_FILES = ("go.mod", "go.sum", "main.go", "tools.go")
GO_MODULE = "rocketlens/tests/interop/query"
GO_PLUGINS = ("google.golang.org/protobuf/cmd/protoc-gen-go", "google.golang.org/grpc/cmd/protoc-gen-go-grpc")
ASKING_SECONDS = 300


def generated_client(language: str) -> list[str]:
    """The command of the client in a language, java or go, that takes host and port of a server.

    Raises `ClientUnavailable`.
    """
    if language == "java":
        jars = cached(f"grpc-stubs-{_checksum(POM)}", _bring_jars)
        sources = (*(ROOT / path for path in PROTOS), HERE / "Querying.java")
        name = f"grpc-java-{_checksum(POM, *sources, more=java_identity())}"
        classes = cached(name, lambda folder: _build_java(jars, folder))
        return [tool("java"), *QUICK_JAVA, "-cp", f"{jars}/*{os.pathsep}{classes}", "Querying"]
    sources = (*(ROOT / path for path in PROTOS), *(HERE / "grpc-go" / name for name in GO_FILES))
    return [str(cached(f"grpc-go-{_checksum(*sources)}", _build_go) / "query")]


def answers(client: list[str], host: str, port: int, questions: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What a client prints for questions, a line each."""
    asked = "".join(f"{json.dumps(question)}\n" for question in questions)
    outcome = subprocess.run(
        [*client, host, str(port)], input=asked.encode(), capture_output=True, check=False, timeout=ASKING_SECONDS
    )
    assert outcome.returncode == 0, outcome.stderr.decode()[-4000:]
    return [json.loads(line) for line in outcome.stdout.decode().splitlines()]


def _bring_jars(folder: Path) -> None:
    system = {"Linux": "linux", "Darwin": "osx"}.get(platform.system(), platform.system())
    machine = {"arm64": "aarch_64", "aarch64": "aarch_64", "AMD64": "x86_64"}.get(
        platform.machine(), platform.machine()
    )
    copy_jars(POM, folder, "-Pstubs", f"-Dplatform={system}-{machine}")
    for program in folder.glob("*.exe"):
        program.chmod(0o755)


def _build_java(jars: Path, folder: Path) -> None:
    """Only Maven's protoc writes Java; that of grpcio-tools has the files that ours import."""
    sources, descriptors = folder / "sources", folder / "descriptors"
    sources.mkdir(parents=True)
    _protoc("--include_imports", f"--descriptor_set_out={descriptors}")
    (plugin,) = jars.glob("protoc-gen-grpc-java-*.exe")
    (protoc,) = (path for path in jars.glob("protoc-*.exe") if path != plugin)
    outputs = [f"--java_out={sources}", f"--plugin=protoc-gen-grpc-java={plugin}", f"--grpc-java_out={sources}"]
    run_tool([str(protoc), f"--descriptor_set_in={descriptors}", *outputs, *map(str, PROTOS)], ROOT)
    quick = [f"-J{option}" for option in QUICK_JAVA]
    files = [str(HERE / "Querying.java"), *map(str, sources.rglob("*.java"))]
    run_tool([tool("javac"), *quick, "-proc:none", "-cp", f"{jars}/*", "-d", str(folder), *files], ROOT)


def _build_go(folder: Path) -> None:
    go = tool("go")
    folder.mkdir()
    for name in GO_FILES:
        shutil.copy(HERE / "grpc-go" / name, folder / name)
    run_tool([go, "build", "-mod=readonly", *GO_FLAGS, "-o", f"{folder}/", *GO_PLUGINS], folder, GO_ENVIRONMENT)
    options = ",".join([f"module={GO_MODULE}", *(f"M{path.as_posix()}={GO_MODULE}/messages" for path in PROTOS)])
    outputs = []
    for name in ("go", "go-grpc"):
        plugin = folder / f"protoc-gen-{name}"
        outputs += [f"--plugin=protoc-gen-{name}={plugin}", f"--{name}_out={folder}", f"--{name}_opt={options}"]
    _protoc(*outputs)
    run_tool([go, "build", "-mod=readonly", *GO_FLAGS, "-o", f"{folder}/query", "."], folder, GO_ENVIRONMENT)


def _protoc(*options: str) -> None:
    run_tool([sys.executable, "-m", "grpc_tools.protoc", "-I.", *options, *map(str, PROTOS)], ROOT)


def _checksum(*paths: Path, more: str = "") -> str:
    digest = hashlib.sha256(more.encode())
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
