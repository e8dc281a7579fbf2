"""Stores whose queues are in RocksDB, made of stores with files: the database says nothing, the log all of it."""

import shutil
from pathlib import Path


def with_rocksdb_queues(root: Path) -> Path:
    """Leave of the queues what a broker with `storeType=defaultRocksDB` has: a database, and no file of a queue."""
    for tree in ("consumequeue", "batchconsumequeue", "consumequeue_ext"):
        shutil.rmtree(root / tree, ignore_errors=True)
    (root / "consumequeue").mkdir()
    (root / "consumequeue" / "CURRENT").write_text("MANIFEST-000005\n")
    return root
