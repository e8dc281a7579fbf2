"""The figures that a server tells at /metrics, as numbers by name and labels."""

import urllib.request
from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

Figures = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def figures_of(text: str) -> Figures:
    """Every sample of a text."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def figure(figures: Figures, name: str, **labels: str) -> float:
    """The sum of those with a name, here without the prefix, and such labels among theirs; 0 where none was told."""
    wanted = labels.items()
    return sum(value for (known, own), value in figures.items() if known == f"rocketlens_{name}" and wanted <= own)


def read_figures(port: int) -> Figures:
    """What a server process on the loopback address tells."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        return figures_of(answer.read().decode())
