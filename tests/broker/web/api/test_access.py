"""Who may ask, what an account sees, what a mask hides; and the API held against its own description."""

import logging
from ipaddress import ip_network

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acl_file import ADMIN, ADMIN_SECRET, READER, READER_SECRET, SECRETS, WHITE, write_accounts
from examples import examples
from golden_store import G1, unpack
from store_kinds import RULES, hidden_stores
from store_kinds import SECRETS as HIDDEN
from web_questions import ApiOf, keys

READER_KEYS = keys(READER, READER_SECRET)
ADMIN_KEYS = keys(ADMIN, ADMIN_SECRET)

FAILED = [line.split("\t") for line in (G1 / "consumed-fail.tsv").read_text("utf-8").splitlines()[1:]]


@pytest.fixture
def guarded(g1_store, tmp_path) -> ApiOf:
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
        keys("nobody-key", "\x00no account has this secret"),
        keys(WHITE, ""),
        {"Authorization": "Basic !!!"},
        {"Authorization": "Bearer " + READER_KEYS["Authorization"][6:]},
    ],
)
def test_without_the_right_keys_nothing_is_told(guarded, header, caplog) -> None:
    with caplog.at_level(logging.DEBUG):
        for path in ("/store", "/message") if header else questions(guarded):
            answer = guarded.ask(path, headers=header)
            assert (answer.status, answer.error["code"]) == (401, "unauthorized")
            assert answer.headers["www-authenticate"].startswith("Basic ")
            assert not any(secret.encode() in answer.content for secret in SECRETS)
    assert not any(secret in caplog.text for secret in SECRETS)


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


def behind_proxies(store, accounts, *proxies) -> ApiOf:
    return ApiOf(store, write_accounts(accounts), http_proxies=tuple(map(ip_network, proxies)))


WHITE_ADDRESS, OTHER = "10.10.103.9", "198.51.100.7"


def test_a_white_address_needs_no_keys_and_a_trusted_proxy_says_who_asks(g1_store, tmp_path) -> None:
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


@pytest.mark.parametrize("limit", ["MOST_OF_ONE"])
def test_too_many_questions_at_once_are_refused(limit, g1_store, monkeypatch) -> None:
    monkeypatch.setattr(f"broker.web.api.answer_threads.{limit}", 0)
    answer = ApiOf(g1_store).ask("/store")
    assert (answer.status, answer.error["code"], answer.headers["retry-after"]) == (503, "busy", "1")


FIRST, SECOND = HIDDEN
CHANGING = ("rate", "sentence", "seconds", "readTimestamp", "countedTimestamp", "forecast", "cursor", "diskFree")
"""What differs from one answer to the next."""

QUESTIONS = [
    *(("/message", {"offset": number}) for number in range(6)),
    *(("/message/body", {"offset": number, "unpacked": "true"}) for number in range(6)),
    ("/message", {"offset": 1, "charset": "utf-16-le"}),
    ("/queue/message", {"topic": "T", "queueId": 0, "queueOffset": 1}),
    ("/messages", {"topic": "T"}),
    ("/messages", {"topic": "B"}),
    ("/messages", {"topic": "T", "tag": f"A || T{FIRST}"}),
    ("/messages", {"topic": "T", "sql": f"to <> '{FIRST}'"}),
    ("/filter", {"topic": "T", "tag": f"T{FIRST}"}),
    ("/filter", {"topic": "T", "sql": f"NOT to = '{FIRST}'"}),
    ("/tail", {"topic": "T", "sql": f"to > '{FIRST[:4]}'"}),
    ("/find", {"text": "order-1"}),
    ("/find", {"text": FIRST}),
    ("/find", {"text": f"T{FIRST}"}),
    ("/find", {"text": f"U-{FIRST}"}),
    ("/message/life", {"uniqueKey": f"U-{FIRST}"}),
    ("/message/life", {"uniqueKey": "U0"}),
    ("/search", {"contains": FIRST}),
    ("/search", {"contains": FIRST, "place": "any"}),
    ("/search", {"regex": f"^(?!.*{FIRST})"}),
    ("/search", {"jsonPath": f"$.phone={FIRST}"}),
    ("/search", {"where": f"to <> '{FIRST}'"}),
    ("/search", {"where": f"TAGS IN ('T{FIRST}', '***')", "topic": "T"}),
    ("/search", {"key": FIRST, "topic": "T"}),
    ("/search", {"keyPrefix": FIRST[:5]}),
    ("/search", {"tag": f"T{FIRST}"}),
    ("/histogram", {"topic": "T"}),
    ("/pending", {}),
    ("/space", {}),
]


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    return hidden_stores(tmp_path_factory.mktemp("hidden"))


def settled(answer):
    if isinstance(answer, dict):
        return {name: settled(value) for name, value in answer.items() if name not in CHANGING}
    return [settled(each) for each in answer] if isinstance(answer, list) else answer


def answers(stores, path, asked, apis):
    found = []
    for store, api in zip(stores, apis, strict=True):
        question = dict(asked)
        if "offset" in question:
            question["offset"] = store.written[question["offset"]].physical_offset
        answer = api.ask(path, **question)
        while answer.json is not None and answer.json.get("state") == "running":
            answer = api.ask(path, **question)
        found.append((answer.status, answer.content if answer.json is None else settled(answer.json)))
    return found


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_no_endpoint_tells_two_stores_apart_that_differ_in_what_is_hidden(stores, rules, monkeypatch) -> None:
    monkeypatch.setattr("broker.web.api.search.LEAST_MILLISECONDS", 60_000)  # a search is answered to its end
    statuses = set()
    apis = [ApiOf(store.root, masked=rules) for store in stores]
    for path, asked in QUESTIONS:
        first, second = answers(stores, path, asked, apis)
        assert first == second, path
        statuses.add(first[0])
        assert SECOND not in repr(first), path
        if FIRST not in repr(asked):
            assert FIRST not in repr(first), path
    assert statuses == {200, 400}


def test_without_a_mask_they_are_told_apart(stores) -> None:
    apis = [ApiOf(store.root) for store in stores]
    differ = [len({repr(each) for each in answers(stores, path, asked, apis)}) for path, asked in QUESTIONS]
    assert differ.count(2) > len(QUESTIONS) // 2


@pytest.mark.parametrize(
    ("path", "asked", "parameter"),
    [
        ("/messages", {"topic": "T", "tag": "A"}, "tag"),
        ("/filter", {"topic": "T", "sql": "to = 'x'"}, "sql"),
        ("/message/life", {"uniqueKey": "U0"}, "uniqueKey"),
        ("/search", {"key": "k"}, ""),
    ],
)
def test_what_is_masked_cannot_be_searched(stores, path, asked, parameter) -> None:
    refused = ApiOf(stores[0].root, masked=RULES["fields"]).ask(path, **asked)
    assert (refused.status, refused.error["parameter"]) == (400, parameter)
    assert "what is masked cannot be searched" in refused.error["message"]


PATHS = (
    "/store", "/find", "/message", "/message/body", "/message/life", "/queue/message", "/topics", "/topic", "/groups",
    "/dead-letters", "/light-topics", "/messages", "/tail", "/histogram", "/filter", "/search",
    "/pending", "/space", "/health",
)  # fmt: skip

THERE = {
    "topic": st.sampled_from(["TopicTest", "BulkTopic", "%RETRY%CG_FAIL", "TopicEmpty"]),
    "text": st.sampled_from(["hotkey", "TagA", "Aa", "7F00000100002A9F0000000000000DF0", "3568"]),
    "offset": st.sampled_from([0, 275, 3568, 6581]),
    "uniqueKey": st.just("FD000000000000000000000000000002708C30946E0968720E650000"),
    "queueId": st.integers(0, 3),
    "queueOffset": st.integers(0, 14),
    "tag": st.sampled_from(["*", "TagA || Aa"]),
    "sql": st.sampled_from(["a > 3", "region = 'hz' OR TAGS IS NULL"]),
    "begin": st.integers(1795243505455, 1795243511058)
    | st.sampled_from(["-1h", "2026-11-21 14:45:06", "yesterday 14:00"]),
    "timezone": st.sampled_from(["Asia/Shanghai", "-03:30"]),
}
"""What the recorded store has, in place of what a fuzzer makes up, every other time."""


def conform():
    from schemathesis import checks
    from schemathesis.specs.openapi import checks as described

    names = ("status_code_conformance", "content_type_conformance", "response_schema_conformance")
    return checks.not_a_server_error, *(getattr(described, name) for name in names)


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> ApiOf:
    return ApiOf(unpack("store", tmp_path_factory.mktemp("described")), http_hosts=("testserver",))


@pytest.fixture(scope="module")
def schema(described):
    import schemathesis

    return schemathesis.openapi.from_asgi("/openapi.json", described.application)


def test_every_path_is_described_and_every_description_is_whole(described: ApiOf) -> None:
    description = described.get("/openapi.json")
    assert description["openapi"] == "3.1.0"
    assert tuple(description["paths"]) == PATHS
    parameters = []
    undescribed: list[tuple[str, str]] = []
    for name, path in description["paths"].items():
        assert path["get"]["summary"].endswith(".")
        undescribed += [(name, each["name"]) for each in path["get"]["parameters"] if len(each["description"]) < 10]
        parameters += [(parameter["name"], parameter["schema"]) for parameter in path["get"]["parameters"]]
        assert set(path["get"]["responses"]) == {"200", "400", "401", "403", "404", "405", "503"}
    assert {"topic", "key", "limit", "cursor"} <= {name for name, _ in parameters}
    assert [name for name, schema in parameters if not schema] == []
    assert undescribed == []


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_is_as_described(schema, path) -> None:
    from schemathesis import GenerationMode

    operation, checks = schema[path]["GET"], conform()

    @given(operation.as_strategy(generation_mode=GenerationMode.POSITIVE), st.data())
    @settings(max_examples=examples(1), deadline=None, suppress_health_check=list(HealthCheck), database=None)
    def ask(case, data) -> None:
        for name in ("regex", "jsonPath"):  # each of these starts a process
            case.query.pop(name, None)
        for name in THERE.keys() & case.query.keys():
            if data.draw(st.booleans()):
                case.query[name] = data.draw(THERE[name])
        case.call_and_validate(checks=checks)

    ask()


@pytest.mark.parametrize("path", PATHS[1::3])  # the first takes nothing; all read their questions alike
def test_what_is_not_described_is_refused_as_described(schema, path) -> None:
    from schemathesis import GenerationMode
    from schemathesis.specs.openapi.checks import negative_data_rejection

    operation, checks = schema[path]["GET"], (*conform(), negative_data_rejection)

    @given(operation.as_strategy(generation_mode=GenerationMode.NEGATIVE))
    @settings(max_examples=examples(1), deadline=None, suppress_health_check=list(HealthCheck), database=None)
    def ask(case) -> None:
        case.call_and_validate(checks=checks)

    ask()
