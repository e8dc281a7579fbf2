"""What a broker that starts does to a store, foretold from the files as they lie; nothing is written or asked.

First, whether it starts at all (`start_refusals`). Then the log: where the recovery begins to read (`start_place`),
what it takes for a record (`_broker_walk`), where it ends the log and which segments it deletes (`log_outcome`).
Last, what becomes of queues and index (`queue_ends`, `queue_outcome`).
"""
