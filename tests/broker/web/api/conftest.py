"""The API over the recorded store."""

import pytest

from web_questions import ApiOf


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes start slowly on a machine that runs other tests."""
    monkeypatch.setattr("broker.web.api.answer_threads.ANSWER_SECONDS", 150.0)
    monkeypatch.setattr("web_questions.DEADLINE_SECONDS", 180.0)


@pytest.fixture(scope="session")
def api(g1_store) -> ApiOf:
    return ApiOf(g1_store)
