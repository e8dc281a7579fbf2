"""One run of a job that leaves its output below a URL: attempts of tasks, then a manifest that is created once.

    URL/_manifest.json                       which objects count, with sizes and checksums; created last
    URL/_attempts/RUN/_run.json              who makes the run; gone when it has ended
    URL/_attempts/RUN/TASK.TOKEN/NAME        what an attempt of a task has written
    URL/_attempts/RUN/TASK.TOKEN/_done.json  the record of an attempt that came to its end; gone when the run has ended

RUN is random, and so is the TOKEN of each attempt. Nothing is renamed or copied: the manifest names what counts where
it lies, and readers follow it alone. Names that begin with `_` are passed over by Spark and Arrow, so a reader of
the directory that ignores the manifest finds nothing, never something twice.

A run goes on where an earlier one was killed: it takes an attempt that came to its end instead of making another. So
nobody removes such an attempt, be it one that will not count, before there is a manifest that does not name it.
"""

import contextlib
import os
import secrets
import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from protocol.errors import ConfigError, StoreError
from spark_jobs.places.hashed_file import HashedFile
from spark_jobs.places.output_place import NewObject, OutputPlace
from spark_jobs.places.place_names import ATTEMPTS, MANIFEST
from storage.files.attempt_names import attempt_name
from storage.files.own_directories import is_below

DONE: Final = "_done.json"
RUN: Final = "_run.json"
_TRIES: Final = 3
_BLOCK: Final = 4 * 1024 * 1024

PlacedRecord: TypeAlias = dict[str, Any]
"""What a task's attempt left: the task's own summary, and `objects`, which it wrote."""


class PlacedObject(msgspec.Struct, frozen=True):
    """One object as a manifest lists it: its name relative to the URL, its size and its checksum."""

    name: str
    bytes: int
    sha256: str


class Committed(msgspec.Struct, frozen=True, kw_only=True):
    """What all manifests have: the command, the `run` that made it, `host` and time; each command adds to it."""

    command: str
    run: str = ""
    host: str = ""
    written: str = ""
    parts: tuple[PlacedObject, ...] = ()


Kind = TypeVar("Kind", bound=Committed)


class PlacedRun(msgspec.Struct, frozen=True):
    """A run as its tasks get it: where it writes, and under which name, in which directory `below` the URL."""

    url: str
    storage: str
    token: str
    below: str = ATTEMPTS

    def place(self) -> OutputPlace:
        """Open the place."""
        return OutputPlace(self.url, self.storage)

    @property
    def directory(self) -> str:
        """Where all of the run lies but the manifest."""
        return f"{self.below}/{self.token}"


class PlacedAttempt:
    """Where one attempt of a task writes."""

    def __init__(self, run: PlacedRun, place: OutputPlace, task: str) -> None:
        """Choose the name; nothing is made."""
        self.directory = f"{run.directory}/{attempt_name(task)}"
        self.objects: list[PlacedObject] = []
        self._place = place
        self._begun: list[str] = []

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[tuple[HashedFile, Callable[[], None]]]:
        """A new object, and what makes it count; without that there will be none."""
        path = f"{self.directory}/{name}"
        self._begun.append(path)
        new: NewObject = self._place.new_object(path)
        with HashedFile(new, self._place.path(path)) as file:

            def commit() -> None:
                new.commit()
                self.objects.append(PlacedObject(path, file.size, file.sha256))

            yield file, commit

    def send(self, path: Path, name: str) -> None:
        """Write an object that has the bytes of a file."""
        with open(path, "rb") as source, self.writing(name) as (file, commit):
            while block := source.read(_BLOCK):
                file.write(block)
            commit()

    def finish(self, record: PlacedRecord) -> None:
        """Leave the record, from which on the attempt may count."""
        path = f"{self.directory}/{DONE}"
        self._begun.append(path)
        new = self._place.new_object(path)
        with contextlib.closing(new):
            new.write(msgspec.json.encode(record))
            new.commit()

    def discard(self) -> None:
        """Remove what the attempt has written."""
        with contextlib.suppress(StoreError, OSError):
            self._place.remove(self._begun)


def run_placed(
    run: PlacedRun, task: str, found: Collection[str], make: Callable[[PlacedAttempt], PlacedRecord]
) -> PlacedRecord:
    """Do what a task has to do; the record of the attempt that counts.

    `found` are attempts of an earlier run that came to their end: if the objects of one are there, nothing is done. An
    attempt that fails removes its objects.
    """
    place = run.place()
    for directory in found:
        record = _finished(place, directory)
        if record is not None:
            return record
    attempt, began = PlacedAttempt(run, place, task), time.time()
    try:
        record = {
            **make(attempt),
            "attempt": attempt.directory,
            "objects": msgspec.to_builtins(attempt.objects),
            "began": began,
            "seconds": time.time() - began,
        }
        attempt.finish(record)
    except BaseException:
        attempt.discard()
        raise
    return record


def _finished(place: OutputPlace, directory: str) -> PlacedRecord | None:
    """The record of a finished attempt, None where it or one of its objects is not what it was."""
    try:
        record = msgspec.json.decode(place.read(f"{directory}/{DONE}") or b"", type=dict[str, Any])
        objects = msgspec.convert(record["objects"], list[PlacedObject])
    except (msgspec.MsgspecError, KeyError):
        return None
    is_inside = all(each.name.startswith(f"{directory}/") and is_below(each.name) for each in objects)
    is_whole = is_inside and all(place.size(each.name) == each.bytes for each in objects)
    return record if is_whole and record.get("attempt") == directory else None


class Driver:
    """What the driver of a run does with the place; `run` is what its tasks need."""

    def __init__(self, place: OutputPlace, run: PlacedRun, command: str, replaced: Committed | None = None) -> None:
        """See :meth:`start`."""
        self.place, self.run = place, run
        self._command, self._replaced = command, replaced
        self.found: dict[str, list[str]] = {}

    @classmethod
    def start(cls, url: str, storage: str, command: str, *, fresh: bool = False, token: str = "") -> "Driver":
        """Begin a run and find what earlier runs have finished, unless it is to be made afresh.

        Raises ConfigError where it cannot be, as :func:`check_url`, or where the object store would replace a manifest.
        `token` is the run's name, if it has one.
        """
        place, committed = check_url(url, storage, fresh=fresh)
        run = PlacedRun(url, storage, token or new_token())
        driver = cls(place, run, command, committed)
        driver._enter()
        if not fresh:
            with _removed_on_error(place, f"{run.directory}/{RUN}"):
                driver.found = finished_attempts(place)
        return driver

    @classmethod
    def go_on(cls, url: str, storage: str, command: str, token: str) -> "Driver":
        """Go on with a run whose driver has died, which may have committed."""
        place, _ = check_url(url, storage, fresh=True)
        driver = cls(place, PlacedRun(url, storage, token), command)
        driver._enter()
        driver.found = finished_attempts(place)
        return driver

    def _enter(self) -> None:
        enter(self.place, self.run, self._command)

    def commit(self, manifest: dict[str, Any]) -> None:
        """Create the manifest, whose `parts` are objects of attempts, then remove what it does not name of this run.

        Raises StoreError, with nothing of this run left, where another run has committed before.
        """
        committed = Committed(command=self._command, run=self.run.token, host=this_process(), written=_now())
        header = {name: value for name, value in msgspec.to_builtins(committed).items() if name != "parts"}
        whole = {**header, **manifest, **header}
        named = msgspec.convert(whole["parts"], tuple[PlacedObject, ...])
        self._confirm(named)
        self._make_room()
        data = msgspec.json.format(msgspec.json.encode(whole), indent=2) + b"\n"
        winner = self._create(data)
        self.sweep(winner)
        if winner.run != self.run.token:
            raise StoreError(self.place.path(MANIFEST), what=f"is that of another run: {described(winner)}; "
                             f"what this run ({self.run.token}) had written is removed")  # fmt: skip
        if self._replaced is not None:
            self._remove_unnamed((each.name for each in self._replaced.parts), winner)

    def committed(self) -> Committed | None:
        """Return what is committed, by whichever run."""
        return read_manifest(self.place)

    def sweep(self, committed: Committed) -> None:
        """Remove what is of this run and is not committed."""
        self._remove_unnamed(self.place.objects(self.run.directory), committed)

    def undo(self) -> None:
        """Remove all that this run has written."""
        with contextlib.suppress(StoreError, OSError):
            self.place.remove(self.place.objects(self.run.directory))

    def leave(self) -> None:
        """End without a manifest: what attempts have finished stays for the next run, unless another has committed."""
        with contextlib.suppress(StoreError, OSError):
            committed = self.committed()
            if committed is not None:
                self.sweep(committed)
        with contextlib.suppress(StoreError, OSError):
            self.place.remove([f"{self.run.directory}/{RUN}"])

    def _remove_unnamed(self, names: Iterable[str], committed: Committed) -> None:
        kept = {each.name for each in committed.parts}
        self.place.remove(name for name in names if name not in kept)

    def _confirm(self, named: Iterable[PlacedObject]) -> None:
        """Raise StoreError where an object that is going to be named is not there."""
        there = self.place.objects(ATTEMPTS)
        for each in named:
            size = there[each.name].size if each.name in there else None
            if size != each.bytes:
                raise StoreError(self.place.path(each.name), what="was removed or changed before it counted: size",
                                 expected=each.bytes, found=size)  # fmt: skip

    def _make_room(self) -> None:
        """Remove the manifest that is to be replaced, unless it is another by now."""
        if self._replaced is not None:
            current = self.committed()
            if current is not None and current.run == self._replaced.run:
                self.place.remove([MANIFEST])

    def _create(self, data: bytes) -> Committed:
        """Create the manifest; what is committed then. An answer that was lost, or is late, decides nothing."""
        for last in (*[False] * (_TRIES - 1), True):
            error: StoreError | None = None
            try:
                self.place.create(MANIFEST, data)
            except StoreError as found:
                error = found
            committed = self.committed()
            if committed is not None:
                return committed
            if last:
                raise error or StoreError(self.place.path(MANIFEST), what="was removed as soon as it was written")
        raise AssertionError


def enter(place: OutputPlace, run: PlacedRun, command: str) -> None:
    """Say who makes a run, and see by it that nothing is created twice; raises ConfigError where it is."""
    name = f"{run.directory}/{RUN}"
    who = Committed(command=command, run=run.token, host=this_process(), written=_now())
    with _removed_on_error(place, name):
        if place.read(name) is None:
            place.create(name, msgspec.json.encode(who))
        before = place.read(name)
        with contextlib.suppress(StoreError):
            place.create(name, b"{}")
        if place.read(name) != before:
            raise ConfigError(
                f"{run.url}: this object store ignores If-None-Match, so two runs could each believe to be "
                "the only one: write elsewhere"
            )


@contextlib.contextmanager
def _removed_on_error(place: OutputPlace, name: str) -> Iterator[None]:
    """Remove an object where the body fails; where that fails, too, the body's error says that it is still there."""
    try:
        yield
    except BaseException as error:
        try:
            place.remove([name])
        except (StoreError, OSError) as left:
            if isinstance(error, ConfigError):
                raise ConfigError(f"{error}; {place.path(name)} stays there: {left}") from error
        raise


def check_url(url: str, storage: str, *, fresh: bool, run: str | None = None) -> tuple[OutputPlace, Committed | None]:
    """The place, and what is committed there; nothing is made.

    Raises ConfigError where somebody else's files are, or a finished output unless it may be replaced, or is that of
    the `run` that goes on.
    """
    place = OutputPlace(url, storage)
    foreign = [name for name in place.names() if name not in (MANIFEST, ATTEMPTS)]
    if foreign:
        raise ConfigError(f"--out {url}: it contains {foreign[0]}: choose an empty directory")
    committed = read_manifest(place)
    if committed is not None and not fresh and committed.run != run:
        raise ConfigError(
            f"--out {url}: it contains a finished {committed.command}: choose another directory, or --fresh"
        )
    return place, committed


def read_manifest(place: OutputPlace) -> Committed | None:
    """Read the manifest of a place, None if nothing is committed; raises StoreError for one that is not ours."""
    data = place.read(MANIFEST)
    return None if data is None else decode_manifest(place, data, Committed, "RocketLens")


def decode_manifest(place: OutputPlace, data: bytes, kind: type[Kind], whose: str) -> Kind:
    """A manifest with what the command that wrote it has added; raises StoreError where it is not one of `whose`."""
    try:
        manifest = msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise StoreError(place.path(MANIFEST), what=f"is no manifest of {whose}: {error}") from error
    for each in manifest.parts:
        if not is_below(each.name):
            raise StoreError(place.path(MANIFEST), what=f"names {each.name!r}, which does not lie beside it")
    return manifest


def finished_attempts(place: OutputPlace) -> dict[str, list[str]]:
    """The directories of attempts that came to their end, by the names of their tasks."""
    found: dict[str, list[str]] = {}
    for name in sorted(place.objects(ATTEMPTS)):
        directory, _, last = name.rpartition("/")
        if last == DONE and directory.count("/") == 2:
            found.setdefault(os.path.basename(directory).rpartition(".")[0], []).append(directory)
    return found


def new_token() -> str:
    """A name for a run that no other has."""
    return secrets.token_hex(8)


def described(committed: Committed) -> str:
    """Who has committed, and when."""
    return f"{committed.run} of {committed.host}, written at {committed.written}"


def this_process() -> str:
    """The machine and the number of this process."""
    return f"{socket.gethostname()} (process {os.getpid()})"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
