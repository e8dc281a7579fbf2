"""Packages of other people that bear the names of ours."""

from pathlib import Path

MARK = ".was-imported"


def plant_foreign(directory: Path, *names: str) -> Path:
    """Put packages of these names into a directory; one that is imported leaves a mark there."""
    for name in names:
        (directory / name).mkdir(parents=True)
        (directory / name / "__init__.py").write_text(f"open({str(directory / MARK)!r}, 'w').close()\n")
    return directory


def was_imported(directory: Path) -> bool:
    """Whether one of them was."""
    return (directory / MARK).exists()
