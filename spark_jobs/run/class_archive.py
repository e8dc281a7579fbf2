"""Spark's classes as the JVM keeps them once they are loaded: an archive that makes it start in half of the time.

Most of what a JVM does until Spark is up is to find, verify and lay out some ten thousand classes, the same ones each
time. The first JVM leaves them in an archive when it ends (JEP 350), the next ones map that. Every JVM checks that an
archive is of its own build and of the very jars on its class path, and goes without where it is not.
"""

import hashlib
import os
import shutil
from pathlib import Path
from typing import Final

from storage.files.attempt_names import attempt_name
from storage.files.own_directories import user_cache

PREFIX: Final = "spark-classes-"
SUFFIX: Final = ".jsa"

_QUIET: Final = "-Xlog:cds*=error"
"""Hundreds of classes cannot be archived, and a JVM would name each."""


class ClassArchive:
    """The archive for one Java and one Spark; `path` is None where there is nowhere to keep it."""

    def __init__(self, path: Path | None) -> None:
        """Use the file if it is there, else have the JVM make it."""
        self.path = path
        self.is_missing = path is not None and not path.exists()
        self._partial = Path() if path is None else path.with_name(attempt_name(path.name))

    def options(self) -> list[str]:
        """Return the options that have the JVM use or make the archive."""
        if self.path is None:
            return []
        if self.is_missing:
            return [_QUIET, f"-XX:ArchiveClassesAtExit={self._partial}"]
        return [_QUIET, f"-XX:SharedArchiveFile={self.path}"]

    def keep(self, *, ended_well: bool) -> None:
        """The JVM has ended: what it made is for the next ones, and those of other Javas and Sparks are of no use."""
        if self.path is None or not self.is_missing:
            return
        try:
            if not ended_well:
                self._partial.unlink(missing_ok=True)
            elif self._partial.exists():
                os.replace(self._partial, self.path)
                # Also what other JVMs left that were killed: one that is still writing makes one that nobody needs.
                for other in self.path.parent.glob(f"{PREFIX}*{SUFFIX}*"):
                    if other != self.path:
                        other.unlink(missing_ok=True)
        except OSError:
            return  # a cache that cannot be written to is none


def class_archive(spark_home: Path) -> ClassArchive:
    """The archive for the Java that Spark's scripts will start, in the user's cache."""
    cache, java = user_cache(), find_java()
    if cache is None or java is None:
        return ClassArchive(None)
    digest = hashlib.sha256()
    for path in (java, spark_home / "jars"):
        status = os.stat(path)
        digest.update(f"{path.resolve()} {status.st_size} {status.st_mtime_ns}\n".encode())
    return ClassArchive(cache.absolute() / f"{PREFIX}{digest.hexdigest()[:16]}{SUFFIX}")


def find_java() -> Path | None:
    """The java that Spark's scripts run, None where there is none."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=os.path.join(home, "bin")) if home else shutil.which("java")
    return Path(found).resolve() if found else None
