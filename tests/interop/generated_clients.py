"""A client of the gRPC port in Go, of stubs that protoc generates from our `.proto` files."""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

from interop.jars import GO_ENVIRONMENT, GO_FLAGS, cached
from interop.other_clients import run_tool
from needed_tools import tool

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PROTOS = sorted(path.relative_to(ROOT) for path in (ROOT / "broker" / "grpc" / "messages").glob("*.proto"))
GO_FILES = ("go.mod", "go.sum", "main.go", "tools.go")
GO_MODULE = "rocketlens/tests/interop/query"
GO_PLUGINS = ("google.golang.org/protobuf/cmd/protoc-gen-go", "google.golang.org/grpc/cmd/protoc-gen-go-grpc")
ASKING_SECONDS = 300


def generated_client() -> list[str]:
    """The command of the client, which takes host and port of a server. Raises `ClientUnavailable`."""
    sources = (*(ROOT / path for path in PROTOS), *(HERE / "grpc-go" / name for name in GO_FILES))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources))
    return [str(cached(f"grpc-go-{digest.hexdigest()[:16]}", _build_go) / "query")]


def answers(client, host, port, questions):
    asked = "".join(f"{json.dumps(question)}\n" for question in questions)
    command = [*client, host, str(port)]
    outcome = subprocess.run(command, input=asked.encode(), capture_output=True, check=False, timeout=ASKING_SECONDS)
    assert outcome.returncode == 0, outcome.stderr.decode()[-4000:]
    return [json.loads(line) for line in outcome.stdout.decode().splitlines()]


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
