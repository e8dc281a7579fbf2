"""The options of a compaction of the index, checked before anything is started."""

from spark_jobs.build.build_request import BuildRequest


class CompactRequest(BuildRequest, frozen=True, kw_only=True):
    """Options of a compaction of the index; entries of `topics` are left out, and with `drop_tags` those of tags.

    With `from_log` the index is made from the log, by the rules of `profile`, else from the index files that there are.
    """

    from_log: bool = False
    drop_tags: bool = False
