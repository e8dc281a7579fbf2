"""Kernels on memory: scan a segment, hash keys, walk a chain, build slots; compiled when RocketLens is built.

They know few objects, so that the server and the Spark jobs share them; each has a plain-Python oracle in
`tests/support/oracles.py`.
"""
