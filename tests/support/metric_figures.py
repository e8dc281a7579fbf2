"""The figures that a server reports at /metrics, as numbers by name and labels."""

import re
import urllib.request
from collections import defaultdict

Labels = frozenset[tuple[str, str]]


class Figures(dict[tuple[str, Labels], float]):
    """Values by name and labels, and `named` by name alone: there are tens of thousands."""

    def __init__(self, values: dict[tuple[str, Labels], float]) -> None:
        super().__init__(values)
        self.named = defaultdict[str, list[tuple[Labels, float]]](list)
        for (name, labels), value in values.items():
            self.named[name].append((labels, value))


SAMPLE = re.compile(r"^([a-z]\w*)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def figures_of(text: str) -> Figures:
    samples = SAMPLE.findall(text)
    return Figures({(name, frozenset(LABEL.findall(labels))): float(value) for name, labels, value in samples})


def figure(figures: Figures, name: str, **labels: str) -> float:
    """The sum of those with a name, here without the prefix, and such labels among theirs; 0 where there is none."""
    wanted = labels.items()
    return sum(value for own, value in figures.named[f"rocketlens_{name}"] if wanted <= own)


def read_figures(port: int) -> Figures:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        return figures_of(answer.read().decode())
