"""The description of the API, and the API held against it: questions that it allows, and questions that it forbids.

Late imports: schemathesis takes a second, and every process that collects tests has this module.
"""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from examples import examples
from golden_store import unpack
from web_questions import ApiOf

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
