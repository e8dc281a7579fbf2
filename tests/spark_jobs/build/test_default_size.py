"""A store that fills an index file of default size and rolls over: our bytes are the official broker's own."""

import pytest

from benchmarks.make_store import make_store
from benchmarks.rebuild import differing_files, run_java
from benchmarks.store_plan import StoreParameters, StorePlan
from interop.jars import SERVER_VERSION, jars
from spark_jobs.build.rebuild_request import RebuildRequest
from spark_jobs.commands.run import run_rebuild
from spark_jobs.run.progress import Silence
from storage.store.message_store import MessageStore, StoreOptions

SLOTS, ENTRIES, BYTES = 5_000_000, 20_000_000, 420_000_040
MESSAGES = 5_100_000


@pytest.mark.soak
@pytest.mark.interop
def test_a_full_file_of_default_size_and_the_one_behind_it_are_the_brokers_bytes(tmp_path) -> None:
    store = make_store(tmp_path, StoreParameters(count=MESSAGES, segment_size=1 << 29), None)
    out = tmp_path / "ours"
    run_rebuild(RebuildRequest(store=str(store), out=str(out), index=True, queues=True), Silence())
    files = sorted((out / "index").iterdir())
    assert [file.stat().st_size for file in files] == [BYTES, BYTES]
    end_of_log = StorePlan.load(store).end_of_log
    run_java(store, tmp_path / "java", jars(SERVER_VERSION), end_of_log, 4 * MESSAGES, segment_size=1 << 29)
    assert differing_files(out, tmp_path / "java") == []
    (out / "commitlog").symlink_to(store / "commitlog")
    (out / "config").symlink_to(store / "config")
    shapes = [file.index.shape for file in MessageStore.open(out, StoreOptions()).snapshot.index.files]
    assert [(each.slots, each.entries) for each in shapes] == [
        (SLOTS, ENTRIES - 1),
        (SLOTS, 4 * MESSAGES - ENTRIES + 1),
    ]
