"""Find what is wrong with a store; each finding names its place.

A quick look (:mod:`.examine`) reads what recovery and look-ups depend on, within seconds, and samples the rest. The
deep part of the checks takes a queue, an index file or a part of the log at a time, and compares everything;
`spark_jobs.doctor` cuts a store into such tasks. Both add to one list of findings, in the same words.
"""
