"""Files to values: a RocketMQ store directory opened read-only, its log, queues and indexes, and the facade over them.

No sockets and no event loop; imports `protocol` alone.
"""
