"""`make release VERSION=0.2.0`: makes everything of a release, and publishes nothing.

In this order, so that what fails leaves no tag: version and changelog, the checks of CI, the commit, the wheels, the
image, the bills of materials, their checksums, and at last the tag. The page is docs/releasing.md.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROJECT, CHANGELOG = "pyproject.toml", "CHANGELOG.md"
VERSION = re.compile(r'^version = "([^"]+)"$', re.M)
SECTION = re.compile(r"^## (\S+)\n(.*?)(?=^## |\Z)", re.M | re.S)
NEXT = "Unreleased"
"""The changelog's heading above what no release has yet."""

LOCKS = {"": "requirements.lock", "-spark": "requirements-spark.lock"}
"""What is installed with the server, and with the jobs: each gets a bill of materials."""

Run = Callable[[Sequence[str]], None]


class CannotRelease(Exception):
    """The release cannot be made; the message is a sentence that says why."""


def numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version, to be compared; raises CannotRelease for anything but three of them."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise CannotRelease(f"VERSION={version!r} is no version: expected three numbers, as in VERSION=0.2.0")
    return tuple(map(int, version.split(".")))


def with_version(project: str, version: str) -> str:
    """The text of pyproject.toml with another version; raises CannotRelease for one that is older."""
    (before,) = VERSION.findall(project)
    if numbers(version) < numbers(before):
        raise CannotRelease(f"{PROJECT} has version {before} already, which is newer than {version}")
    return VERSION.sub(f'version = "{version}"', project, count=1)


def with_release(changelog: str, version: str) -> str:
    """The text of the changelog in which the newest section is that of a version; raises CannotRelease without one."""
    sections = SECTION.findall(changelog)
    if not sections or sections[0][0] not in (NEXT, version):
        raise CannotRelease(f"{CHANGELOG} begins neither with ## {NEXT} nor with ## {version}: what is new?")
    if not sections[0][1].strip():
        raise CannotRelease(f"{CHANGELOG} says nothing of {version}")
    return changelog.replace(f"## {NEXT}\n", f"## {version}\n", 1)


def notes(changelog: str, version: str) -> str:
    """What the changelog says of a version."""
    return dict(SECTION.findall(changelog))[version].strip()


class Release:
    """One release of the tree in a directory; `run` runs a command there and raises where that fails."""

    def __init__(self, root: Path, version: str, run: Run, *, with_image: bool) -> None:
        self._root, self._version, self._run, self._with_image = root, version, run, with_image
        self._dist = root / "dist"
        self._tag = f"v{version}"

    def make(self) -> None:
        """Do it all. Raises CannotRelease for what can be known before, CalledProcessError for what fails."""
        self._check()
        self._write()
        self._run([".ci/run"])
        self._commit()
        shutil.rmtree(self._dist, ignore_errors=True)
        self._run(["make", "wheels"])
        if self._with_image:
            self._run(["docker", "build", "--target", "server", "--tag", f"rocketlens:{self._version}", "."])
        self._list_materials()
        self._note_checksums()
        self._run(["git", "tag", "--annotate", self._tag, "--message", self._message()])

    def _check(self) -> None:
        numbers(self._version)
        changed = [line[3:] for line in self._git("status", "--porcelain")]
        others = [name for name in changed if name not in (PROJECT, CHANGELOG)]
        if others:
            raise CannotRelease(f"{others[0]} is not committed: a release is made of what is")
        if self._git("tag", "--list", self._tag):
            raise CannotRelease(f"there is a tag {self._tag} already")
        if self._with_image and shutil.which("docker") is None:
            raise CannotRelease("there is no docker to build the image with; IMAGE=no leaves it out")

    def _write(self) -> None:
        project, changelog = self._root / PROJECT, self._root / CHANGELOG
        texts = with_version(project.read_text(), self._version), with_release(changelog.read_text(), self._version)
        project.write_text(texts[0])
        changelog.write_text(texts[1])

    def _commit(self) -> None:
        if self._git("status", "--porcelain"):
            self._run(["git", "commit", "--quiet", "--message", f"Release {self._version}", PROJECT, CHANGELOG])

    def _list_materials(self) -> None:
        self._dist.mkdir(exist_ok=True)
        installed = (
            f"PYTHONPATH={(self._root / os.environ.get('VENV', '.venv') / 'wheels').absolute()}"  # `make wheels`
        )
        for kind, lock in LOCKS.items():
            path = self._dist / f"rocketlens-{self._version}{kind}.cdx.json"
            options = ["--pyproject", PROJECT, "--output-reproducible", "--output-file", str(path)]
            self._run(["env", installed, sys.executable, "-m", "cyclonedx_py", "requirements", *options, lock])

    def _note_checksums(self) -> None:
        files = sorted(path for path in self._dist.iterdir() if path.name != "SHA256SUMS")
        lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
        (self._dist / "SHA256SUMS").write_text("".join(lines))

    def _message(self) -> str:
        return f"RocketLens {self._version}\n\n{notes((self._root / CHANGELOG).read_text(), self._version)}\n"

    def _git(self, *arguments: str) -> list[str]:
        command = ["git", *arguments]
        return subprocess.run(
            command, cwd=self._root, stdout=subprocess.PIPE, text=True, check=True
        ).stdout.splitlines()


def run(command: Sequence[str]) -> None:
    """Run a command in the project's directory, saying so."""
    print(f"release: {' '.join(command).partition(chr(10))[0]}", flush=True)
    subprocess.run(command, cwd=ROOT, check=True)


def main() -> None:
    """Make the release whose version is the argument."""
    version = "".join(sys.argv[1:])
    with_image = os.environ.get("IMAGE") != "no"
    try:
        Release(ROOT, version, run, with_image=with_image).make()
    except CannotRelease as error:
        raise SystemExit(f"release: {error}") from None
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"release: {error.cmd[0]} failed; there is no tag, the same command goes on") from None
    print(f"release: dist/ has all that is to be published, and the tag v{version} is made. What is left to type:")
    print(f"  git push origin HEAD v{version}")
    print("  twine upload dist/*.whl")
    if with_image:
        print(f"  docker push rocketlens:{version}      # under your registry's name")


if __name__ == "__main__":
    main()
