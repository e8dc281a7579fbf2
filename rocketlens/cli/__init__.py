"""The `rocketlens` command, one module a subcommand; nothing but `rocketlens.__main__` imports this package.

Late imports: a command imports what it works with when it works, and names its types under TYPE_CHECKING, so that
`--help`, usage errors and small commands come at once. `tests/rocketlens/cli/test_processes.py` holds it.
"""
