"""Logs of a few segments of one KiB, and the names of the recorded stores whose logs are compared with ours."""

from golden_store import GOLDEN
from storage.log.commit_log import CommitLog
from store_writer import StoreWriter

SEGMENT = 1024
G2 = sorted(path.name for path in (GOLDEN / "g2").glob("*/") if (path / "store.tar.xz").exists())


def opened(writer, finish=StoreWriter.close):
    """The log of a writer that has ended, cleanly or not."""
    finish(writer)
    return CommitLog.open(writer.log.directories)


def fill(writer: StoreWriter, count: int, size: int = 100) -> None:
    """Append some messages, each with a key of its own."""
    for number in range(count):
        writer.append("T", bytes([number]) * size, keys=f"k{number}")
