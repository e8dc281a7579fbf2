"""Run the bulk jobs: from a request, by a plan of the disk and the time that it takes, to a report.

The commands themselves are in `rocketlens.cli`.
"""
