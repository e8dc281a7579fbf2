"""Bytes to values and back: the RocketMQ remoting protocol and the stored-message format, without any I/O.

Nothing here opens a file or a socket, and nothing of ours is imported: this is the lowest layer.
"""
