"""MCP over HTTP: both revisions, who may ask, what is written down, and the same answers as over stdin."""

import json
from base64 import b64encode

import h11
import httpx
import pytest

from acl_file import ADMIN, ADMIN_SECRET, READER, READER_SECRET, write_accounts
from assistant import META, MOST_BYTES, answers, call, request
from broker.metrics.metrics_rows import MetricsRows
from broker.security.audit_log import AuditLog
from broker.web._strict_requests import BODY_BYTES, StrictRequests
from broker.web.site import Site
from rocketlens.mcp.http import assistants
from web_questions import ApiOf, answer_of

HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


class AssistantsOf:
    def __init__(self, root, **options) -> None:
        self.api = ApiOf(root, **options).api
        routes = assistants(self.api)
        self.application = Site(MetricsRows(), lambda _accept: (b"", ""), self.api, more=routes).application()

    def ask(self, message, keys="", method="POST", path="/mcp", **headers) -> httpx.Response:
        given = dict(HEADERS)
        if isinstance(message, dict) and "_meta" in message.get("params", {}):
            given["MCP-Protocol-Version"] = "2026-07-28"
            given["Mcp-Method"] = message["method"]
            name = message["params"].get("name") or message["params"].get("uri")
            if name:
                given["Mcp-Name"] = f"=?base64?{b64encode(name.encode()).decode()}?="
        if keys:
            given["Authorization"] = f"Basic {b64encode(keys.encode()).decode()}"
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        body = message if isinstance(message, bytes) else json.dumps(message).encode()

        answer = answer_of(self.application, method, path, content=body, headers=given)
        assert len(answer.content) <= MOST_BYTES
        return answer

    def content(self, message, keys=""):
        result = self.ask(message, keys).json()["result"]
        return {"error": result["content"][0]["text"]} if result["isError"] else result["structuredContent"]


@pytest.fixture(scope="module")
def port(g1_store) -> AssistantsOf:
    return AssistantsOf(g1_store)


def test_the_same_is_answered_as_over_stdin(g1_store, port) -> None:
    calls = [
        call(1, "find", text="hotkey", limit=3), call(2, "message", id="6581"), call(3, "story", id="batch-0"),
        call(4, "search", topic="TopicTest", contains="hot 1"), call(5, "topics"),
        call(6, "topics", topic="TopicTest"), call(7, "groups", queues=True),
        call(8, "messages", topic="TopicTest", order="newest", limit=5),
        call(9, "messages", topic="TopicTest", queueId=0, offset=3), call(10, "find", text="nothing")
    ]  # fmt: skip
    over_stdin = answers(g1_store, says=calls)
    for asked, expected in zip(calls, over_stdin, strict=True):
        assert port.content(asked) == expected


def test_what_the_headers_say_is_held_against_the_body(port: AssistantsOf) -> None:
    asked = call(1, "find", text="x")
    old = {**asked, "params": {**asked["params"], "_meta": {**META, "io.modelcontextprotocol/protocolVersion": "1900"}}}
    legacy = call(1, "find", text="x", modern=False)
    cases = [
        (asked, {}, 200, None),
        (asked, {"Mcp_Method": "tools/list"}, 400, -32020),
        (asked, {"Mcp_Name": "search"}, 400, -32020),
        (asked, {"Mcp_Name": "=?base64?~?="}, 400, -32020),
        (asked, {"MCP_Protocol_Version": "2025-11-25"}, 400, -32020),
        (old, {"MCP_Protocol_Version": "1900"}, 400, -32022),
        (legacy, {"MCP_Protocol_Version": "2026-07-28"}, 400, -32602),
        (legacy, {"MCP_Protocol_Version": "1999-01-01"}, 400, -32022),
        (legacy, {"MCP_Protocol_Version": "2025-11-25"}, 200, None),
        (legacy, {}, 200, None),
        (request(1, "subscriptions/listen"), {}, 404, -32601),
        (request(1, "logging/setLevel", modern=False), {}, 200, -32601),
        ({"jsonrpc": "2.0", "method": "notifications/initialized"}, {}, 202, None),
        (b"{", {}, 400, -32700),
        (asked, {"Content_Type": "text/plain"}, 415, -32600),
    ]
    for message, headers, status, code in cases:
        answer = port.ask(message, **headers)
        assert answer.status_code == status, (headers, answer.text)
        assert (answer.json().get("error", {}).get("code") if answer.content else None) == code
    assert port.ask(b"", method="GET").status_code == port.ask(b"", method="DELETE").status_code == 405


def test_foreign_pages_and_hosts_are_refused_and_written_down(g1_store, tmp_path) -> None:
    port = AssistantsOf(g1_store, audit_log=AuditLog(tmp_path / "audit.log"))
    foreign = {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"}
    for headers in (*foreign, {"Sec_Fetch_Site": "cross-site"}):
        assert port.ask(request(1, "tools/list"), **headers).status_code == 403
    assert port.ask(request(1, "tools/list"), Origin="http://127.0.0.1").status_code == 200
    lines = [json.loads(line) for line in (tmp_path / "audit.log").read_text().splitlines()]
    assert [(each["request"], each["result"]) for each in lines] == [
        ("POST /mcp", code) for code in ("FOREIGN_SITE", "FOREIGN_SITE", "FOREIGN_HOST", "FOREIGN_SITE")
    ]


def test_progress_comes_as_events_and_the_answer_last(port: AssistantsOf) -> None:
    asked = call(1, "search", contains="hot")
    asked["params"]["_meta"] = {**META, "progressToken": 7}
    answer = port.ask(asked)
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
    assert [each["params"]["progressToken"] for each in events[:-1]] == [7] * (len(events) - 1)
    assert len(events) > 1
    assert events[-1]["result"]["structuredContent"]["truncated"] is True


def test_accounts_see_what_is_theirs_and_every_look_is_written_down(g1_store, tmp_path) -> None:
    log = AuditLog(tmp_path / "audit.log")
    port = AssistantsOf(g1_store, accounts=write_accounts(tmp_path / "plain_acl.yml"), audit_log=log)
    reader, admin = f"{READER}:{READER_SECRET}", f"{ADMIN}:{ADMIN_SECRET}"
    assert port.ask(request(1, "tools/list")).status_code == 401
    assert len(port.content(call(1, "find", text="hotkey"), admin)["messages"]) == 20
    hidden = [
        call(2, "find", text="batch-0"), call(3, "message", id="4461"), call(4, "search", contains="a"),
        call(5, "messages", topic="TopicBatch"), call(6, "story", id="batch-0"), call(7, "pending"), call(8, "health"),
        call(9, "topics"), call(10, "groups")
    ]  # fmt: skip
    found = [port.content(each, reader) for each in hidden]
    assert "batch-0" not in json.dumps([each.get("messages") for each in found[:1]])
    assert all("batch body" not in json.dumps(each) for each in found)
    assert ["error" in each for each in found] == [False, False, True, True, False, True, True, False, False]
    assert [each["topic"] for each in found[7]["topics"]] == ["TopicTest"]
    assert "TopicBatch" not in json.dumps(found[8])
    for number in range(12):
        status = port.ask(request(number, "tools/list"), f"{READER}:wrong-{number}").status_code
    assert status == 429
    lines = [json.loads(line) for line in (tmp_path / "audit.log").read_text().splitlines()]
    looks = [(each["request"], each["result"]) for each in lines]
    assert ("POST /mcp find", "SUCCESS") in looks
    assert any(result == "UNAUTHORIZED" for _, result in looks)
    (shown,) = [each for each in lines if each["request"] == "POST /mcp find" and each["account"] == ADMIN]
    assert shown["messages"] == len(shown["offsets"]) == 20
    assert ("POST /mcp messages", "FORBIDDEN") in looks


@pytest.mark.parametrize(
    ("head", "taken"),
    [
        (b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}", True),
        (b"POST /other HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}", False),
        (b"GET /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}", False),
        (b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}", False),
        (b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: +2\r\n\r\n{}", False),
        (b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (BODY_BYTES + 1), False),
        (b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999\r\n\r\n", False),
        (b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 0000000009999999999\r\n\r\n", False),
        (b"POST /mcp HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", False),
    ],
)
def test_a_body_is_taken_at_the_one_path_with_its_one_length(head: bytes, taken: bool) -> None:
    requests = StrictRequests(frozenset({b"/mcp"}))
    requests.receive_data(head)
    if not taken:
        with pytest.raises(h11.RemoteProtocolError):
            requests.next_event()
        return
    assert isinstance(requests.next_event(), h11.Request)
    assert requests.next_event().data == b"{}"
