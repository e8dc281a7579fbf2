"""What the page shows first; a store that was taken away is reported as a problem, not shown as an empty store."""

import shutil
from pathlib import Path

import pytest

from broker.service.denials import Want
from store_writer import StoreWriter
from web_questions import ApiOf


def _api(root: Path) -> ApiOf:
    writer = StoreWriter(root)
    writer.append("orders", b"body", keys="key")
    writer.close()
    return ApiOf(root)


def test_administrators_see_which_accounts_lacked_what_and_the_line_to_add(tmp_path: Path) -> None:
    api = _api(tmp_path / "store")
    assert api.get("/store")["refused"] == []
    want = Want("reader-key", "SUB of topic orders", "topicPerms: - orders=SUB")
    api.service.denials.note(want)
    api.service.denials.note(want)
    (line,) = api.get("/store")["refused"]
    assert (line["account"], line["lacks"], line["add"], line["count"]) == (*want, 2)


def test_a_store_that_was_taken_away_is_told(tmp_path: Path) -> None:
    api = _api(tmp_path / "store")
    shutil.rmtree(tmp_path / "store")
    problem = api.get("/store")["gone"]
    assert api.get("/store")["problems"][0] == problem
    assert problem.startswith("the store cannot be followed, answers are of what was read before: ")
    assert "found nothing there" in problem
    for condition in ({"contains": "body"}, {"regex": "b.dy"}):
        assert len(api.get("/search", **condition)["messages"]) == 1


def test_what_is_read_while_a_file_is_cut_is_not_shown(api: ApiOf, monkeypatch: pytest.MonkeyPatch) -> None:
    assert api.ask("/store").status == 200
    monkeypatch.setattr("broker.web.api.request_context.count_cuts", lambda: -1)  # one less than there were at the end
    answer = api.ask("/store")
    assert answer.status >= 500
    assert "a file was cut or could not be read" in answer.error["message"]
