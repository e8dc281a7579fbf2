"""Numba kernels on arrays: scan a segment, hash keys, walk a chain, build slots.

They know no objects, so that the server and the Spark jobs share them; each has a plain-Python oracle in
`tests/oracles.py`.
"""
