"""What the public face's docstrings and its page show is what it does, on the recorded store."""

import asyncio
import doctest
import importlib
import re
from pathlib import Path

import pytest

import rocketlens
from broker.endpoint import Endpoint
from made_parts import made

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
ADDRESS = "127.0.0.1:10911"
METHODS = (
    "doctor",
    "find",
    "follow",
    "groups",
    "info",
    "life",
    "look_up",
    "pending",
    "pull",
    "query",
    "queues",
    "search",
    "space",
)
METHODS += ("topics", "view")
FLAGS = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
MODULES = ("protocol.question", *(f"rocketlens.{name}" for name in ("answers", "arrow_reader", "looking_up", "remote")))
MODULES += ("rocketlens.searching", "rocketlens.source")


def run(test: doctest.DocTest, server: Endpoint, path: Path) -> int:
    """Run examples with the addresses and paths that they name put in; how many there were."""
    for example in test.examples:
        example.source = example.source.replace(ADDRESS, str(server)).replace("/path/to/store", str(path))
    report: list[str] = []
    outcome = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=report.append)
    assert outcome.failed == 0, "".join(report)
    return outcome.attempted


@pytest.mark.parametrize("name", MODULES)
def test_what_docstrings_show_is_what_happens(name: str, g1_store: Path, server: Endpoint) -> None:
    module = importlib.import_module(name)
    with rocketlens.open(g1_store) as store, rocketlens.connect(str(server)) as remote:
        names = {"store": store, "remote": remote, "path": g1_store, "rocketlens": rocketlens, "asyncio": asyncio}
        tests = doctest.DocTestFinder(exclude_empty=True).find(module, name, extraglobs=names)
        assert sum(run(each, server, g1_store) for each in tests) > 0


def test_what_docstrings_of_sources_show_happens_over_the_network_too(g1_store: Path, server: Endpoint) -> None:
    module = importlib.import_module("rocketlens.source")
    with rocketlens.connect(str(server)) as remote:
        tests = doctest.DocTestFinder(exclude_empty=True).find(module, extraglobs={"store": remote})
        asked = [each for each in tests if each.name.rpartition(".")[2] not in rocketlens.RemoteStore.why_not]
        assert sum(run(each, server, g1_store) for each in asked) > 10


def test_every_method_of_a_source_that_looks_something_up_shows_how() -> None:
    for name in METHODS:
        shown = (getattr(rocketlens.Source, name).__doc__ or "") + (rocketlens.Search.__doc__ or "")
        assert f"store.{name}(" in shown, name


def test_what_the_page_shows_is_what_happens(g1_store: Path, server: Endpoint) -> None:
    text = re.sub(r"^```.*$", "", PAGE.read_text(), flags=re.M)
    test = doctest.DocTestParser().get_doctest(text, {}, PAGE.name, str(PAGE), 0)
    assert run(test, server, g1_store) > 20


def test_the_page_names_all_that_is_promised() -> None:
    text = made(PAGE.read_text())
    unnamed = {"AsyncRemoteStore", "AsyncSearch", "Event", "Group", "HostAddress", "Info", "Message"}
    unnamed |= {"MessageLife", "ProgressReport", "ProtocolError", "Reading"}
    unnamed |= {
        "Diagnosis",
        "Finding",
        "LookUp",
        "RemoteStore",
        "QueueExtent",
        "Search",
        "Source",
        "Space",
        "Store",
        "Topic",
    }  # what the others return
    assert unnamed < set(rocketlens.__all__)
    assert [name for name in rocketlens.__all__ if name not in unnamed and f"`{name}" not in text and
            f"rocketlens.{name}" not in text] == []  # fmt: skip
