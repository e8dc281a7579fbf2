"""Verifications without Spark, and what they found, for tests; damage that is mended again."""

import contextlib
import itertools
import os

import fsspec
import msgspec

from spark_jobs.doctor.deep_check import DeepCheck
from spark_jobs.doctor.deep_request import DeepRequest
from spark_jobs.places.file_systems import file_system
from spark_jobs.run.progress import Silence
from spark_jobs.run.work_directory import WorkDirectory
from spark_jobs.scan.source import opened_source

NUMBERS = itertools.count()


def run_here(name, tasks, function):
    """Run tasks one after the other, as Spark would; what goes to and fro is packed, as it is there."""
    assert name
    return [function(msgspec.msgpack.decode(msgspec.msgpack.encode(task), type=type(task))) for task in tasks]


def verify_here(store, work, **options):
    """Verify a store by the functions of the tasks alone."""
    request = DeepRequest(store=str(store), **options)
    with opened_source(request.store, request.commit_log_directories, request.storage) as source:
        directory = WorkDirectory.open(work / f"verify-{os.getpid()}", {}, fresh=True)
        try:
            return DeepCheck(request, source, directory, run_here, Silence()).run()
        finally:
            directory.remove()


def verify_in_memory(store, work, **options):
    """Verify a copy of a store in fsspec's file system `memory`; names in the report are those of the store itself."""
    with in_memory(store) as url:
        return named_as(verify_here(url, work, **options), url, store)


def upload(store, url, storage="") -> None:
    system, inner = file_system(url, storage)
    for path in sorted(store.rglob("*")):
        if path.is_file():
            system.pipe_file(f"{inner}/{path.relative_to(store)}", path.read_bytes())
        elif path.is_dir():  # where a file system has such
            system.makedirs(f"{inner}/{path.relative_to(store)}", exist_ok=True)


@contextlib.contextmanager
def in_memory(store):
    """The URL of a copy of a directory in fsspec's file system `memory`."""
    url = f"memory://copy-{os.getpid()}-{next(NUMBERS)}"
    upload(store, url)
    try:
        yield url
    finally:
        fsspec.filesystem("memory").rm(url, recursive=True)


def flip(path, position, mask=1) -> None:
    """Flip bits of a byte of a file, for good."""
    data = bytearray(path.read_bytes())
    data[position] ^= mask
    path.write_bytes(data)


def named_as(report, url, store):
    """A report of a store behind a URL as it would be of a directory."""

    def named(text: str) -> str:
        return text.replace(url, str(store))

    report.store, report.notes = named(report.store), list(map(named, report.notes))
    places = ("path", "expected", "found", "place")
    report.details.findings = [
        msgspec.structs.replace(each, **{name: named(getattr(each, name)) for name in places})
        for each in report.details.findings
    ]
    return report


def findings_of(report):
    return [finding for finding in report.details.findings if not finding.more]


def told(report):
    """All of it, for the message of an assertion."""
    lines = [f"{finding.where}: {finding.what}" for finding in findings_of(report)]
    return "\n".join([*lines, *report.notes]) or "nothing"


def assert_clean(report) -> None:
    assert report.details.clean, told(report)
    assert report.exit_code == 0
    assert report.details.counts == {}


@contextlib.contextmanager
def damaged(path, position, data):
    """Other bytes at a position of a file, for a while."""
    before = path.read_bytes()
    try:
        path.write_bytes(before[:position] + data + before[position + len(data) :])
        yield
    finally:
        path.write_bytes(before)


@contextlib.contextmanager
def flipped(path, position, bit):
    """One bit of a file the other way round, for a while."""
    with damaged(path, position, bytes([path.read_bytes()[position] ^ 1 << bit])):
        yield


@contextlib.contextmanager
def replaced(path, content):
    """Another file, or none, in place of one, for a while."""
    before = path.read_bytes()
    try:
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)
        yield
    finally:
        path.write_bytes(before)
