"""The modules of the gRPC messages are what protoc makes of the .proto, and these what Apache's clients speak."""

import subprocess
import sys
from pathlib import Path

import pytest

from process import ROOT

FOLDER = Path("broker/grpc/messages")
NAMES = ("admin", "definition", "service")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("protos")
    protos = [str(FOLDER / f"{name}.proto") for name in NAMES]
    options = ["-I.", f"--python_out={folder}", f"--pyi_out={folder}"]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *options, *protos], cwd=ROOT, check=True, timeout=120)
    return folder / FOLDER


@pytest.mark.parametrize("name", [f"{name}_pb2.{kind}" for name in NAMES for kind in ("py", "pyi")])
def test_a_module_is_what_protoc_makes_of_its_file(name: str, made: Path) -> None:
    assert (ROOT / FOLDER / name).read_text() == (made / name).read_text()
