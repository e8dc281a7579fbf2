"""The page's files over HTTP: all of them, with the policy that lets a browser run nothing else."""

import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.web._page_files import DIRECTORY, ICON, VIEWS, read_page
from broker_harness import service_of
from storage.store.message_store import MessageStore
from web_questions import serving_page

LARGEST_MODULE = 300


@pytest.fixture(scope="module")
def origin(g1_store: Path) -> Iterator[str]:
    with serving_page([service_of(MessageStore.open(g1_store))]) as origin:
        yield origin


def get(place: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    request = urllib.request.Request(place, headers={name.replace("_", "-"): value for name, value in headers.items()})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, {name.lower(): value for name, value in answer.headers.items()}, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, {name.lower(): value for name, value in error.headers.items()}, error.read()


def test_every_file_comes_with_the_policy(origin: str) -> None:
    for path in (*VIEWS, ICON, *(f"/page/{name}" for name in read_page())):
        status, headers, content = get(origin + path)
        assert (status, bool(content)) == (200, True), path
        policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
        for name in ("default-src", "base-uri", "frame-ancestors", "form-action"):
            assert policy[name] == "'none'", path
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["require-trusted-types-for"] == "'script'"
        assert not re.search(r"unsafe|https?:|\*", headers["content-security-policy"])
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")
        assert get(origin + path, If_None_Match=headers["etag"])[0] == 304


def test_every_view_is_the_same_document_and_nothing_else_is_there(origin: str) -> None:
    documents = {get(origin + view)[2] for view in VIEWS}
    assert documents == {(DIRECTORY / "index.html").read_bytes()}
    for path in ("/page/", "/page/none.js", "/page/../site.py", "/page/%2e%2e/site.py", "/index.html", "/nothing"):
        assert get(origin + path)[0] == 404


def test_a_browser_finds_the_icon_where_it_looks_for_one_that_no_page_names(origin: str) -> None:
    _, headers, content = get(origin + "/favicon.ico")
    assert (headers["content-type"], content) == ("image/svg+xml", (DIRECTORY / "icon.svg").read_bytes())


def test_the_document_runs_nothing_by_itself_and_names_only_files_that_are_there() -> None:
    document = (DIRECTORY / "index.html").read_text()
    assert not re.search(r"<script(?![^>]* src=)|<style|\son\w+=|style=|https?://", document)
    named = set(re.findall(r'"/page/([^"]+)"', document))
    assert named <= set(read_page())


def test_no_script_makes_markup_or_code_of_texts() -> None:
    for name in (each for each in read_page() if each.endswith(".js")):
        text = (DIRECTORY / name).read_text()
        made = re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|DOMParser", text)
        assert not made, name
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), name
        assert text.count("\n") <= LARGEST_MODULE, name
        # Every module that it imports is a file of the page.
        assert set(re.findall(r'from "\./([^"]+)"', text)) <= set(read_page()), name
