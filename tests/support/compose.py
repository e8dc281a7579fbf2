"""`docker-compose.yml` and the Dockerfile as far as plain processes need them."""

import os
import re
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
COMPOSE_FILE = ROOT / "docker-compose.yml"
VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?::-(?P<default>[^}]*))?\}")


def load(variables, path=COMPOSE_FILE):
    def value(match: re.Match[str]) -> str:
        assert match["name"] in variables or match["default"] is not None, f"{match[0]} has neither value nor default"
        return variables.get(match["name"], match["default"] or "")

    document = yaml.safe_load(VARIABLE.sub(value, path.read_text()))
    return document


def dockerfile_stages() -> dict[str, list[str]]:
    """Stage name to its instructions, continued lines joined, comments left out."""
    text = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text())
    stages: dict[str, list[str]] = {}
    for line in text.splitlines():
        if match := re.match(r"FROM \S+ AS (\S+)$", line):
            stages[match[1]] = []
        if stages and line and not line.startswith("#"):
            stages[list(stages)[-1]].append(line)
    return stages


def image_environment() -> dict[str, str]:
    """This process's environment with the running interpreter's programs first, as the image's PATH has them."""
    return dict(os.environ, PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", PYTHONUNBUFFERED="1")
