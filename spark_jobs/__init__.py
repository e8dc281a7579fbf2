"""Spark jobs that rebuild and compact IndexFiles and ConsumeQueues in bulk from CommitLog segments.

Imports `storage` and `protocol`, never `broker`; needs the extra `spark`. The scripts here are what
spark-submit takes: each runs a command of `rocketlens`.
"""
