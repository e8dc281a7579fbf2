"""The benchmark of the first paint fetches what a browser would fetch for it, of a store as large as it says."""

import re
from pathlib import Path

from benchmarks.page import FIRST, QUEUES, SEGMENTS, TOPICS, VIEW, make_store
from broker.web._page_files import DIRECTORY


def test_it_fetches_the_document_and_all_scripts_of_the_first_view() -> None:
    wanted = {"main.js"}
    while more := {name for each in wanted for name in imports(each)} - wanted:
        wanted |= more
    document = (DIRECTORY / "index.html").read_text()
    preloaded = set(re.findall(r'modulepreload" href="/page/([^"]+)"', document))
    assert {"main.js", *VIEW} == wanted | preloaded
    named = set(re.findall(r'(?:href|src)="(/page/[^"]+\.(?:css|js))"', document))
    assert named <= {*FIRST, *(f"/page/{name}" for name in VIEW)}


def imports(name: str) -> set[str]:
    return set(re.findall(r'from "\./([^"]+)"', (DIRECTORY / name).read_text()))


def test_its_store_has_so_many_segments_and_queues(tmp_path: Path) -> None:
    make_store(tmp_path / "store")
    assert len(list((tmp_path / "store" / "commitlog").iterdir())) == SEGMENTS
    assert len(list((tmp_path / "store" / "consumequeue").glob("*/*"))) == TOPICS * QUEUES
