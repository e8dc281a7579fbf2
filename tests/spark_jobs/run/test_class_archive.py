"""Where Spark's classes are kept for the next JVM, and for which one."""

import os
from pathlib import Path

import pytest

from spark_jobs.run.class_archive import ClassArchive, class_archive, find_java

QUIET = "-Xlog:cds*=error"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "rocketlens").mkdir(mode=0o700)
    return tmp_path / "rocketlens"


@pytest.fixture
def spark_home(tmp_path: Path) -> Path:
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    return tmp_path / "spark"


def made_by(archive: ClassArchive) -> Path:
    """Write what a JVM with the options of this archive leaves when it ends; returns its path."""
    quiet, option = archive.options()
    assert quiet == QUIET
    name, _, path = option.partition("=")
    assert name == "-XX:ArchiveClassesAtExit"
    Path(path).write_bytes(b"classes")
    return Path(path)


def test_the_first_jvm_makes_the_archive_and_the_next_one_uses_it(cache: Path, spark_home: Path) -> None:
    first = class_archive(spark_home)
    assert made_by(first) != first.path
    first.keep(ended_well=True)
    second = class_archive(spark_home)
    assert second.options() == [QUIET, f"-XX:SharedArchiveFile={second.path}"]
    assert [second.path] == list(cache.iterdir())
    second.keep(ended_well=True)
    assert [second.path] == list(cache.iterdir())


def test_nothing_is_kept_of_a_jvm_that_ended_badly_or_made_nothing(cache: Path, spark_home: Path) -> None:
    archive = class_archive(spark_home)
    archive.keep(ended_well=True)
    made_by(archive)
    archive.keep(ended_well=False)
    assert list(cache.iterdir()) == []


def test_other_jars_are_another_archive_in_whose_favour_the_old_one_goes(cache: Path, spark_home: Path) -> None:
    before = class_archive(spark_home)
    made_by(before)
    before.keep(ended_well=True)
    os.utime(spark_home / "jars", (1, 1))
    after = class_archive(spark_home)
    assert after.is_missing
    made_by(after)
    after.keep(ended_well=True)
    assert list(cache.iterdir()) == [after.path]


def test_without_a_cache_or_a_java_there_is_no_archive(
    cache: Path, spark_home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() is None
    assert class_archive(spark_home).options() == []
    monkeypatch.delenv("JAVA_HOME")
    cache.chmod(0o777)
    archive = class_archive(spark_home)
    assert archive.options() == []
    archive.keep(ended_well=True)
    assert list(cache.iterdir()) == []


def test_a_cache_that_takes_no_file_is_none(cache: Path, spark_home: Path) -> None:
    archive = class_archive(spark_home)
    made_by(archive)
    assert archive.path is not None
    (archive.path / "in the way").mkdir(parents=True)
    archive.keep(ended_well=True)
    assert (archive.path / "in the way").is_dir()
