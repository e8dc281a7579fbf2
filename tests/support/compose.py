"""Runs a service of `docker-compose.yml` as a plain process, with the service's own command and no container engine.

What an engine would provide is put in its place: `${VARIABLES}` are filled in, volumes and configs become files in
temporary folders, container ports become free ports (all moved by one distance, since a broker's ports hang together),
service names become the loopback address, and `rocketlens`, `python` and `spark-class` are those of the running
environment, as the image's PATH has them. A path in a command that no volume and no config provides is an error here,
as it would be in the container.
"""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
COMPOSE_FILE = ROOT / "docker-compose.yml"
VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?::-(?P<default>[^}]*))?\}")
CONFIGURED_PORT = re.compile(r"(?:Port=|:)(\d{4,5})\b")
STOP_SECONDS = 60


class Composition:
    """The services of a compose file, with temporary folders for volumes and free ports for ports."""

    def __init__(
        self, folder: Path, variables: Mapping[str, str], *, provided: Mapping[str, Path] | None = None
    ) -> None:
        """`variables` fill the file's `${NAME}`; `provided` says where files of foreign images lie here."""
        self._folder = folder
        self._document = load(variables)
        self._provided = dict(provided or {})
        self._distance = free_distance(self._container_ports())

    @property
    def services(self) -> dict[str, dict[str, Any]]:
        """The services by name, as the file has them after interpolation."""
        services: dict[str, dict[str, Any]] = self._document["services"]
        return services

    @property
    def configs(self) -> dict[str, dict[str, str]]:
        """The contents of files for services, by name; a test may add to them before a service runs."""
        configs: dict[str, dict[str, str]] = self._document["configs"]
        return configs

    def port(self, container_port: int) -> int:
        """The port that stands for one of a container."""
        return container_port + self._distance

    def command(self, name: str) -> list[str]:
        """The entry point and the command of a service, translated to this machine."""
        service = self.services[name]
        return [*entry_point(service), *(self._argument(service, text) for text in service["command"])]

    def healthcheck(self, name: str) -> list[str]:
        """The health check of a service, translated; it has the exec form (`CMD`)."""
        form, *command = self.services[name]["healthcheck"]["test"]
        assert form == "CMD"
        return [self._translate({}, text) for text in command]

    @contextmanager
    def running(self, name: str, environment: Mapping[str, str] | None = None) -> Iterator["subprocess.Popen[str]"]:
        """The service as a process in a session of its own, all of which is gone at the end; logs in NAME.log."""
        command = self.command(name)
        with (self._folder / f"{name}.log").open("w") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if name == "rocketlens" else log,
                stderr=log,
                text=True,
                cwd=self._folder,
                env=image_environment() | dict(environment or {}),
                start_new_session=True,
            )
        try:
            yield process
        finally:
            end_session(process)

    def log_text(self, name: str) -> str:
        """What the service printed so far."""
        return (self._folder / f"{name}.log").read_text(errors="replace")

    def _container_ports(self) -> set[int]:
        mapped = {
            int(entry.rsplit(":", 1)[1]) for service in self.services.values() for entry in service.get("ports", [])
        }
        configs = "\n".join(config["content"] for config in self._document.get("configs", {}).values())
        return mapped | {int(number) for number in CONFIGURED_PORT.findall(configs)}

    def _argument(self, service: Mapping[str, Any], text: str) -> str:
        translated = self._translate(self._paths(service), text)
        if translated.startswith("/"):
            known = (self._folder, *self._provided.values(), *self._host_paths(service))
            assert any(translated.startswith(f"{path}") for path in known), f"nothing provides {text} in the container"
        return translated

    def _translate(self, paths: Mapping[str, Path], text: str) -> str:
        for target, path in sorted({**paths, **self._provided}.items(), reverse=True):
            text = re.sub(rf"(?<![\w.-]){re.escape(target)}(?![\w.-])", str(path), text)
        for name in self.services:
            text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?=:\d|$)", "127.0.0.1", text)
        for number in self._container_ports():
            text = re.sub(rf"(?<![\w.-]){number}(?![\w.-])", str(self.port(number)), text)
        return text.replace("0.0.0.0", "127.0.0.1")

    def _paths(self, service: Mapping[str, Any]) -> dict[str, Path]:
        """Container path to path here, of every volume and config of a service; configs are written out."""
        paths = {}
        for volume in service.get("volumes", []):
            source, target = volume.split(":")[:2]
            paths[target] = Path(source) if source.startswith((".", "/")) else self._folder / f"volume-{source}"
            if source in self._document["volumes"]:
                paths[target].mkdir(exist_ok=True)
        for config in service.get("configs", []):
            content = self._document["configs"][config["source"]]["content"]
            paths[config["target"]] = self._folder / config["source"]
            paths[config["target"]].write_text(self._translate(paths, content))
        return paths

    def _host_paths(self, service: Mapping[str, Any]) -> list[Path]:
        return [Path(volume.split(":")[0]) for volume in service.get("volumes", []) if volume.startswith("/")]


def load(variables: Mapping[str, str], path: Path = COMPOSE_FILE) -> dict[str, Any]:
    """The compose file with its `${NAME:-default}` filled in; a name without value or default is an error."""

    def value(match: re.Match[str]) -> str:
        default = match["default"]
        assert match["name"] in variables or default is not None, f"{match[0]} has neither value nor default"
        return variables.get(match["name"], default or "")

    document: dict[str, Any] = yaml.safe_load(VARIABLE.sub(value, path.read_text()))
    return document


def entry_point(service: Mapping[str, Any]) -> list[str]:
    """The entry point of the image: the Dockerfile stage's own for ours, none for one that runs what it is given."""
    if "build" not in service:
        return []
    stage = dockerfile_stages()[service["build"]["target"]]
    entry_points = [line.split(maxsplit=1)[1] for line in stage if line.startswith("ENTRYPOINT")]
    return list(yaml.safe_load(entry_points[-1])) if entry_points else []


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


def free_distance(ports: set[int]) -> int:
    """A number by which all ports can be moved so that each of them is free."""
    for distance in range(3000 + os.getpid() % 5000, 20000, 97):
        if all(is_free(port + distance) for port in ports):
            return distance
    raise RuntimeError(f"no free place for the ports {sorted(ports)}")


def is_free(port: int) -> bool:
    """Whether nobody listens on the port of the loopback address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def end_session(process: "subprocess.Popen[str]") -> None:
    """Ends a process that has a session of its own, and whatever it started in it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            os.killpg(process.pid, number)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                continue
    if process.stdout is not None:
        process.stdout.close()
