"""Who may ask: hosts, keys, and what an account may see."""

import asyncio
import logging
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from acl_file import (
    ADMIN,
    ADMIN_SECRET,
    READER,
    READER_SECRET,
    SECRETS,
    WHITE,
    WHITE_SECRET,
    write_accounts,
)
from golden_store import G1
from web_questions import ApiOf, keys

READER_KEYS = keys(READER, READER_SECRET)
ADMIN_KEYS = keys(ADMIN, ADMIN_SECRET)

FAILED = [line.split("\t") for line in (G1 / "consumed-fail.tsv").read_text("utf-8").splitlines()[1:]]


@pytest.fixture
def guarded(g1_store: Path, tmp_path: Path) -> ApiOf:
    write_accounts(tmp_path / "plain_acl.yml")
    return ApiOf(g1_store, tmp_path / "plain_acl.yml")


def questions(guarded: ApiOf) -> list[str]:
    paths = [endpoint.path for endpoint in guarded.api.endpoints]
    assert "/message" in paths
    return paths


@pytest.mark.parametrize(
    "header",
    [
        {},
        keys(READER, "reader-secret-2"),
        keys(READER, ""),
        keys("nobody-key", READER_SECRET),
        keys("nobody-key", "\x00no account has this secret"),
        keys(WHITE, ""),
        {"Authorization": "Basic !!!"},
        {"Authorization": "Basic"},
        {"Authorization": "Basic /////w=="},
        {"Authorization": "Bearer " + READER_KEYS["Authorization"][6:]},
    ],
)
def test_without_the_right_keys_nothing_is_told(
    guarded: ApiOf, header: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        for path in ("/store", "/message") if header else questions(guarded):
            answer = guarded.ask(path, headers=header)
            assert (answer.status, answer.error["code"]) == (401, "unauthorized")
            assert not any(secret.encode() in answer.content for secret in SECRETS)
    assert not any(secret in caplog.text for secret in SECRETS)


def test_a_browser_that_opens_a_path_is_asked_for_keys_and_one_whose_page_asks_is_not(guarded: ApiOf) -> None:
    assert guarded.ask("/store").headers["www-authenticate"].startswith("Basic ")
    by_page = guarded.ask("/store", headers={"Sec-Fetch-Mode": "cors"})
    assert by_page.headers["www-authenticate"].startswith("X-Basic ")


def test_an_account_sees_its_topics_and_nothing_of_the_others(guarded: ApiOf) -> None:
    store = guarded.get("/store", headers=READER_KEYS)
    assert (store["topics"], store["log"], store["store"], store["problems"]) == (1, None, None, [])
    assert [each["topic"] for each in guarded.get("/topics", headers=READER_KEYS)["topics"]] == ["TopicTest"]
    found = guarded.get("/find", text="TagA", headers=READER_KEYS)["messages"]
    assert {each["topic"] for each in found} == {"TopicTest"}
    assert guarded.get("/find", text="TopicDelay", headers=READER_KEYS)["topics"] == []
    assert guarded.get("/find", text="TopicDelya", headers=READER_KEYS)["similarTopics"] == []
    assert guarded.get("/message", offset=0, headers=READER_KEYS)["groups"] == []
    assert guarded.ask("/health", headers=READER_KEYS).status == 403


def test_a_topic_that_may_not_be_read_is_refused_on_every_path(guarded: ApiOf) -> None:
    batch = FAILED[0]
    offset = int(batch[5][-16:], 16)
    for path, parameters in (
        ("/message", {"offset": offset}),
        ("/message/body", {"offset": offset}),
        ("/message/life", {"uniqueKey": batch[4], "topic": "TopicBatch"}),
        ("/queue/message", {"topic": "TopicBatch", "queueId": 0, "queueOffset": 0}),
        ("/find", {"text": batch[4], "topic": "TopicBatch"}),
        ("/topic", {"topic": "TopicBatch"}),
        ("/messages", {"topic": "TopicBatch"}),
        ("/histogram", {"topic": "TopicBatch"}),
        ("/filter", {"topic": "TopicBatch", "tag": "*"}),
    ):
        answer = guarded.ask(path, headers=READER_KEYS, **parameters)
        assert (answer.status, answer.error["code"]) == (403, "forbidden"), path
    # Whether it is there at all is nobody's business either.
    assert guarded.ask("/topic", topic="no such topic", headers=READER_KEYS).status == 403
    tried = guarded.get("/find", text=batch[5], headers=READER_KEYS)
    assert tried["messages"] == []
    assert "may not read" in tried["tried"][0]["note"]


def behind_proxies(store: Path, accounts: Path, *proxies: str) -> ApiOf:
    return ApiOf(store, write_accounts(accounts), http_proxies=tuple(map(ip_network, proxies)))


WHITE_ADDRESS, OTHER = "10.10.103.9", "198.51.100.7"


def test_a_white_list_with_the_proxys_own_address_lets_in_nobody_by_it(g1_store: Path, tmp_path: Path) -> None:
    api = behind_proxies(g1_store, tmp_path / "plain_acl.yml", WHITE_ADDRESS)
    assert api.ask("/store", peer=WHITE_ADDRESS).status == 401
    assert api.ask("/store", peer=WHITE_ADDRESS, headers={"X-Forwarded-For": OTHER}).status == 401


@pytest.mark.parametrize("secret", ["", "a wrong secret"])
def test_the_secret_of_an_account_is_asked_for_at_its_white_address_too(guarded: ApiOf, secret: str) -> None:
    assert guarded.ask("/store", peer="172.16.3.4", headers=keys(WHITE, secret)).status == 401
    assert guarded.ask("/store", peer="172.16.3.4", headers=keys(WHITE, WHITE_SECRET)).status == 200


def test_a_white_address_needs_no_keys_and_a_trusted_proxy_says_who_asks(g1_store: Path, tmp_path: Path) -> None:
    behind = behind_proxies(g1_store, tmp_path / "plain_acl.yml", "127.0.0.1", "192.0.2.0/24")
    alone = ApiOf(g1_store, tmp_path / "plain_acl.yml")
    for api, peer, forwarded, status in (
        (alone, WHITE_ADDRESS, OTHER, 200),
        (alone, OTHER, WHITE_ADDRESS, 401),
        (behind, "127.0.0.1", WHITE_ADDRESS, 200),
        (behind, "127.0.0.1", f"{WHITE_ADDRESS}:4711", 200),
        (behind, "127.0.0.1", f"{OTHER}, {WHITE_ADDRESS}", 200),
        (behind, "127.0.0.1", f"{WHITE_ADDRESS}, 192.0.2.8", 200),
        (behind, "192.0.2.8", f"{WHITE_ADDRESS}, 127.0.0.1", 200),
        (behind, "127.0.0.1", OTHER, 401),
        (behind, "127.0.0.1", f"{WHITE_ADDRESS}, {OTHER}", 401),
        (behind, "127.0.0.1", f"{WHITE_ADDRESS}, unknown", 401),
        (behind, "127.0.0.1", f"{WHITE_ADDRESS},", 401),
        (behind, "127.0.0.1", "[2001:db8::1]:80", 401),
        (behind, "127.0.0.1", "", 401),
        (behind, "127.0.0.1", "127.0.0.1", 401),
        (behind, OTHER, WHITE_ADDRESS, 401),
    ):
        asked = {"X-Forwarded-For": forwarded}
        assert api.ask("/store", peer=peer, headers=asked).status == status, (peer, forwarded)
        assert api.ask("/store", peer=peer, headers={**asked, **ADMIN_KEYS}).status == 200, (peer, forwarded)


def test_only_reading_methods_are_answered(api: ApiOf) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        answer = api.ask("/store", method=method)
        assert (answer.status, answer.error["code"]) == (405, "method_not_allowed")
        assert "GET" in answer.headers["allow"]
    assert api.ask("/store", method="HEAD").status == 200
    assert api.ask("/nothing").error == {
        "code": "no_such_path", "message": "nothing is at /nothing", "parameter": None, "similarTopics": []
    }  # fmt: skip


@pytest.mark.parametrize("limit", ["MOST_WAITING", "MOST_OF_ONE"])
def test_too_many_questions_at_once_are_refused(limit: str, g1_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"broker.web.api.answer_threads.{limit}", 0)
    answer = ApiOf(g1_store).ask("/store")
    assert (answer.status, answer.error["code"], answer.headers["retry-after"]) == (503, "busy", "1")


def test_a_client_that_goes_away_stops_the_work(g1_store: Path) -> None:
    import threading

    from broker.web.api.application import ApiEndpoint
    from broker.web.api.overview import StoreQuestion

    began, ended = threading.Event(), threading.Event()

    def work_for_ever(asked: Any, _question: Any) -> bytes:
        """Work until nobody waits."""
        began.set()
        try:
            while True:
                asked.check()
        finally:
            ended.set()

    api = ApiOf(g1_store)
    api.api.endpoints = (ApiEndpoint("/work", StoreQuestion, bytes, work_for_ever),)
    application = api.api.application()
    scope = {
        "type": "http", "method": "GET", "path": "/work", "raw_path": b"/work", "query_string": b"", "root_path": "",
        "headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 5), "server": ("127.0.0.1", 80), "scheme": "http",
        "http_version": "1.1",
    }  # fmt: skip
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        if not sent and not began.is_set():
            await asyncio.to_thread(began.wait, 20)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(application(scope, receive, send))
    assert began.is_set()
    assert ended.wait(60)
    assert sent[0]["status"] == 499
