"""Kernels on headers of commands: read, and written, where they lie; compiled when RocketLens is built.

What all kernels share is here too: loads from memory, and Java's strings in UTF-8.
"""
