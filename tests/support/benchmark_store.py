"""The benchmark's store in miniature."""

from benchmarks.store_plan import StoreParameters

SMALL = StoreParameters(count=1000, hot_keys=4, segment_size=131072, index_slots=97, index_entries=20000)
