"""``python -m benchmarks``: the whole measurement, as ``make bench`` runs it."""

from benchmarks.serve_query import main

main()
