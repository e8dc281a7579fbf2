"""How our objects get into Spark's workers, where our packages may be missing, or others of their names be found.

A session of a cluster sends our packages along as an archive, which Spark unpacks into the directory of each executor.
An object that travels (`Sendable`) arrives by the functions of this module, which are sent by value (`by_value`): so
they run before anything of ours is imported, have the packages found, and check that they are ours and fit the machine.
"""

import gc
import importlib
import importlib.metadata
import os
import pickle
import platform
import sys
import sysconfig
from collections.abc import Callable
from types import FunctionType
from typing import Any, Final, TypeVar

DIRECTORY: Final = "rocketlens-packages"
"""Where an archive is unpacked, in the directory of Spark's files."""

DISTRIBUTION: Final = "rocketlens"
OWN_PACKAGES: Final = "rocketlens.own_packages"
"""What checks that our packages are ours. It lies above us and imports nothing of ours, so that it is imported by name:
in a worker only once it is known where from."""

CANNOT_RUN: Final[str] = importlib.import_module(OWN_PACKAGES).CANNOT_RUN
"""How the sentences begin that tell somebody what to do about an installation; sent along with what uses it."""

A_KERNEL: Final = "storage.kernels.region"


Thing = TypeVar("Thing", bound=Callable[..., Any])


def by_value(thing: Thing) -> Thing:
    """Have PySpark send a function, or a class with its methods, as what a script defines that is run by its name.

    No worker can import that, so it is sent itself, with those of our functions that it calls.
    """
    thing.__module__ = "__main__"
    for each in vars(thing).values() if isinstance(thing, type) else ():
        method = getattr(each, "__func__", each)
        if isinstance(method, FunctionType):
            method.__module__ = "__main__"
    return thing


class Sendable:
    """Mixed into a class whose objects are sent to Spark's workers; with the object comes all that it takes there."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the object for a worker in which nothing of ours was imported yet."""
        from pyspark import serializers  # it takes long to import, and only a session needs it

        pickling: Any = serializers
        packed = pickling.CloudPickleSerializer().dumps((type(self), vars(self)))
        return arrive, (installed_version(), this_python(), packed)


@by_value
def arrive(version: str, sender: str, packed: bytes) -> Any:
    """The object that was packed. Raises ImportError, with a sentence, where this Python cannot run us.

    Spark has a worker collect garbage behind each task: what has been imported is left out from then on, since to look
    at it takes longer than a small task (30 ms for 55,000 objects).
    """
    known = len(sys.modules)
    have_packages_found(version)
    try:
        importlib.import_module(A_KERNEL)
        kind, state = pickle.loads(packed)
    except ImportError as error:
        reason = " ".join(str(error).split())
        raise ImportError(
            f"{CANNOT_RUN}Spark's worker on {platform.node()} ({this_python()}) does not load what comes "
            f"from {sender}: {reason}; install requirements-spark.lock there, and RocketLens"
        ) from None
    if len(sys.modules) > known:
        gc.freeze()
    arrived = object.__new__(kind)
    vars(arrived).update(state)
    return arrived


@by_value
def have_packages_found(version: str) -> None:
    """Make our packages importable: those of this Python if they are of the version, else those that were sent.

    They go behind everything else, but in front of another version. Raises ImportError, with a sentence, where others
    are found, or none.
    """
    if DISTRIBUTION not in sys.modules:
        from pyspark import SparkFiles

        sent = os.path.abspath(os.path.join(SparkFiles.getRootDirectory(), DIRECTORY))
        installed = installed_version()
        if os.path.isdir(sent) and not (installed and installed == version):
            sys.path.insert(0 if installed else len(sys.path), sent)
            importlib.invalidate_caches()
    try:
        own_packages = importlib.import_module(OWN_PACKAGES)
    except ImportError:
        raise ImportError(
            f"{CANNOT_RUN}Spark's worker on {platform.node()} ({this_python()}) does not have it; "
            "install requirements-spark.lock there, and RocketLens"
        ) from None
    own_packages.require_own_packages()


@by_value
def installed_version() -> str:
    """The version that this Python has installed; empty where it runs from the sources, or not at all."""
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return ""


@by_value
def this_python() -> str:
    """Return what must be equal for compiled modules to load: kind of Python, of machine and of C library."""
    try:
        library = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (OSError, ValueError):  # no glibc
        library = ""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return ", ".join(filter(None, (python, sysconfig.get_platform(), library)))
