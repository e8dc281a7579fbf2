"""MCP over stdin and stdout: both revisions, what is no message, cancelling, progress."""

import io
import json
import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from assistant import META, answers, call, request, talk
from process import COMMAND
from rocketlens.mcp.rpc import LONGEST_REQUEST
from rocketlens.mcp.server import McpServer, ToolCall
from rocketlens.mcp.stdio import OpenedSources, StdioServer
from rocketlens.source import Source
from rocketlens.store import Store

LEGACY = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "assistant", "version": "1"}}


def test_a_client_of_the_older_revision_begins_with_initialize(g1_store: Path) -> None:
    said = [
        request(1, "initialize", LEGACY, modern=False),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        request("p", "ping", modern=False),
        request(2, "tools/list", modern=False),
        request(3, "server/discover", modern=False),
        request(4, "initialize", LEGACY | {"protocolVersion": "1999-01-01"}, modern=False),
    ]
    begun, ping, tools, discovered, other = talk(g1_store, says=said)
    assert begun["result"]["protocolVersion"] == "2025-11-25"
    assert begun["result"]["capabilities"] == {"tools": {}, "resources": {}, "prompts": {}}
    assert begun["result"]["serverInfo"]["name"] == "rocketlens"
    assert ping == {"jsonrpc": "2.0", "id": "p", "result": {}}
    assert set(tools["result"]) == {"tools"}
    assert discovered["error"]["code"] == -32601
    assert other["result"]["protocolVersion"] == "2025-11-25"


def test_a_request_of_the_newer_revision_says_everything_by_itself(g1_store: Path) -> None:
    other, missing = dict(META), dict(META)
    other["io.modelcontextprotocol/protocolVersion"] = "2031-01-01"
    del missing["io.modelcontextprotocol/clientCapabilities"]
    said = [
        request(1, "server/discover"),
        request(2, "tools/list"),
        request(3, "initialize"),
        request(4, "ping"),
        {"jsonrpc": "2.0", "id": 5, "method": "tools/list", "params": {"_meta": other}},
        {"jsonrpc": "2.0", "id": 6, "method": "tools/list", "params": {"_meta": missing}},
        request(7, "tools/list", {"cursor": "x"}),
    ]
    discovered, tools, begun, ping, unknown, lacking, page = talk(g1_store, says=said)
    result = discovered["result"]
    assert (result["supportedVersions"], result["resultType"]) == (["2026-07-28"], "complete")
    assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "rocketlens"
    assert (result["ttlMs"], result["cacheScope"]) == (3_600_000, "public")
    assert [each["name"] for each in tools["result"]["tools"]] == [
        *("find", "message", "story", "search", "topics", "groups", "messages", "pending", "health")
    ]
    assert [begun["error"]["code"], ping["error"]["code"]] == [-32601, -32601]
    assert unknown["error"]["code"] == -32022
    assert unknown["error"]["data"] == {"supported": ["2026-07-28"], "requested": "2031-01-01"}
    assert [lacking["error"]["code"], page["error"]["code"]] == [-32602, -32602]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{", -32700),
        (b"\xff", -32700),
        (b"[" * 100_000, -32700),
        (b"[]", -32600),
        (b'"text"', -32600),
        (b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": true, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": 5}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}', -32602),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "nothing/of/ours"}', -32601),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "write"}}', -32602),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "find", "arguments": 3}}', -32602),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "file:///etc/passwd"}}', -32002),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "prompts/get", "params": {"name": "x"}}', -32602),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "x": "' + b"y" * LONGEST_REQUEST + b'"}', -32600),
    ],
    ids=range(16),
)
def test_what_is_no_message_is_answered_by_an_error_and_the_next_one_is_read(
    line: bytes, code: int, g1_store: Path
) -> None:
    refused, ping = talk(g1_store, says=[line, request(2, "ping", modern=False)])
    assert refused["error"]["code"] == code
    assert ping == {"jsonrpc": "2.0", "id": 2, "result": {}}


def test_prompts_and_resources_lead_to_the_tools(g1_store: Path) -> None:
    said = [
        request(1, "prompts/list"),
        request(2, "prompts/get", {"name": "find_lost_order", "arguments": {"order": "4711"}}),
        request(3, "prompts/get", {"name": "why_group_lags", "arguments": {}}),
        request(4, "resources/templates/list"),
        request(5, "resources/read", {"uri": "rocketlens://topic/TopicTest"}),
        request(6, "resources/read", {"uri": "rocketlens://message/6581"}),
        request(7, "resources/read", {"uri": "rocketlens://message/nothing"}),
        request(8, "resources/list"),
    ]
    found = {each["id"]: each for each in talk(g1_store, says=said)}
    assert [each["name"] for each in found[1]["result"]["prompts"]] == ["find_lost_order", "why_group_lags"]
    assert found[2]["result"]["messages"][0]["content"]["text"].endswith("Given:\norder: 4711")
    assert "argument group of why_group_lags is missing" in found[3]["error"]["message"]
    assert [each["name"] for each in found[4]["result"]["resourceTemplates"]] == ["topic", "message"]
    topic, message = (json.loads(found[number]["result"]["contents"][0]["text"]) for number in (5, 6))
    assert [each["queueId"] for each in topic["queues"]] == [0, 1, 2, 3]
    assert message["message"]["body"] == "hot 0"
    assert (found[5]["result"]["ttlMs"], found[5]["result"]["cacheScope"]) == (0, "private")
    assert found[7]["error"]["code"] == -32602
    assert found[8]["result"]["resources"] == []


class Pipe:
    """Lines for a server, which come when a test wants."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._is_closed = False
        self._come = threading.Condition()

    def put(self, *messages: dict[str, Any]) -> None:
        with self._come:
            self._lines += [json.dumps(each).encode() + b"\n" for each in messages]
            self._come.notify_all()

    def close(self) -> None:
        with self._come:
            self._is_closed = True
            self._come.notify_all()

    def readline(self, _most: int) -> bytes:
        with self._come:
            self._come.wait_for(lambda: self._lines or self._is_closed, 30)
            return self._lines.pop(0) if self._lines else b""


class HeldServer(McpServer):
    """One whose calls end when they are told to, or are cancelled."""

    def __init__(self) -> None:
        super().__init__("0")
        self.begun, self.ended = threading.Event(), threading.Event()

    def answer(self, message: Any) -> Any:
        if message.method != "tools/call":
            return super().answer(message)

        def run(context: Any) -> dict[str, Any]:
            for step in range(3):
                context.report(step + 1, 3, "a step")
            self.begun.set()
            while not context.is_cancelled and not self.ended.wait(0.01):
                pass
            return {"content": [], "isError": False}

        return ToolCall("held", {}, run, lambda fields: fields, lambda _error, words: {"error": words})


def test_a_call_that_is_cancelled_ends_and_is_not_answered_and_others_are_meanwhile() -> None:
    pipe, output, server = Pipe(), io.BytesIO(), HeldServer()
    serving = threading.Thread(
        target=StdioServer(server, OpenedSources(Source(), {}), pipe, output).run,  # type: ignore[arg-type]
    )
    serving.start()
    try:
        pipe.put(call(1, "find"))
        assert server.begun.wait(30)
        pipe.put(call(1, "find"), request(2, "tools/list"))
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        pipe.put(cancel, {**cancel, "params": {"requestId": 77}})
    finally:
        pipe.close()
        serving.join(30)
    twice, tools = map(json.loads, output.getvalue().splitlines())
    assert twice["error"]["message"] == "a request with this id is not answered yet"
    assert tools["id"] == 2


def test_a_search_by_key_ends_in_its_time_where_the_index_is_still_to_be_completed(
    g1_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered, send, complete = threading.Event(), StdioServer._send, Store._complete_keys

    def completed(store: Store) -> None:
        assert answered.wait(30)
        complete(store)

    def sent(server: StdioServer, message: Any) -> None:
        send(server, message)
        answered.set()

    monkeypatch.setattr(Store, "_complete_keys", completed)
    monkeypatch.setattr(StdioServer, "_send", sent)
    asked = {"topic": "TopicTest", "key": "hotkey", "limit": 3}
    (first,) = answers(g1_store, says=[call(1, "search", **{**asked, "seconds": 0.1})])
    assert (first["messages"], first["truncated"]) == ([], True)
    assert "it goes on, call again with the cursor" in first["notes"][0]
    (second,) = answers(g1_store, says=[call(2, "search", **asked, cursor=first["cursor"])])
    assert [each["keys"] for each in second["messages"]] == [["hotkey"]] * 3


def test_progress_goes_to_who_asks_for_it_and_never_back() -> None:
    for token in ("mine", None):
        pipe, output, server = Pipe(), io.BytesIO(), HeldServer()
        server.ended.set()
        asked = call(1, "find")
        if token is not None:
            asked["params"]["_meta"]["progressToken"] = token
        pipe.put(asked)
        pipe.close()
        StdioServer(server, OpenedSources(Source(), {}), pipe, output).run()  # type: ignore[arg-type]
        *notes, answer = map(json.loads, output.getvalue().splitlines())
        assert answer["id"] == 1
        assert [each["params"]["progress"] for each in notes] == ([1, 3] if token else [])
        assert {each["params"]["progressToken"] for each in notes} == ({token} if token else set())


def test_sigterm_leaves_no_copy_of_a_store_behind_a_url(g1_store: Path, tmp_path: Path) -> None:
    command = [*COMMAND, "mcp", f"local://{g1_store}"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(call(1, "topics")) + "\n")
        process.stdin.flush()
        assert "TopicTest" in process.stdout.readline()
        assert [each.name[:17] for each in tmp_path.iterdir()] == [".rocketlens-copy-"]
        process.terminate()
        assert process.wait(30) == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []
