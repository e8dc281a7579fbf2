"""`rocketlens filter`: the earlier name of `search` with a subscription, which goes with the next release."""

import copy

from rocketlens.cli.search import search

filter_ = copy.deepcopy(search)
"""The command itself, with variables of the environment of its own."""
filter_.name, filter_.hidden = "filter", True
