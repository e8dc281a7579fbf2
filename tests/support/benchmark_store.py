"""The benchmark's store in miniature: its queues and index are the tests' writer's, not the official broker's."""

from benchmarks import make_store
from benchmarks.store_plan import StoreParameters
from oracles import read_log
from store_writer import StoreWriter

SMALL = StoreParameters(count=1000, hot_keys=4, segment_size=131072, index_slots=97, index_entries=20000)


def make_small(directory, parameters):
    root = make_store.make_store(directory / "bench", parameters, jars=None)
    # One file a queue, as in the real one: a pull ends where a file does.
    sizes = {"segment_size": parameters.segment_size, "queue_file_size": 20 * parameters.count}
    copy = directory / "copy"
    with StoreWriter(copy, index_slots=97, index_entries=20000, **sizes) as writer:
        for record in read_log(root / "commitlog"):
            writer.append_record(record)
    for name in ("consumequeue", "index", "checkpoint"):
        (copy / name).rename(root / name)
    return root
