"""An assistant that speaks MCP: its requests, and the command that answers them in the test's process."""

import json
import threading

from click.testing import CliRunner

from rocketlens.cli.main import main

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "assistant", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}

MOST_BYTES = 64 * 1024
"""Of one answer."""


def request(number, method, params=None, *, modern=True):
    given = dict(params or {})
    if modern:
        given["_meta"] = {**META, **given.get("_meta", {})}
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": given}


def call(number, tool, *, modern=True, **arguments):
    given = {"seconds": 10, **arguments}
    return request(number, "tools/call", {"name": tool, "arguments": given}, modern=modern)


def talk(*arguments, says, code=0):
    """What `rocketlens mcp` answers to some lines, each within its bound; those about one request by its id."""
    lines = b"".join((each if isinstance(each, bytes) else json.dumps(each).encode()) + b"\n" for each in says)
    outcome = CliRunner().invoke(main, ["mcp", *map(str, arguments)], input=lines, prog_name="rocketlens")
    for each in threading.enumerate():  # a process would have ended with it
        if each.name == "asked":
            each.join(30)
    if outcome.exception is not None and not isinstance(outcome.exception, SystemExit):
        raise outcome.exception
    assert outcome.exit_code == code, outcome.stderr
    written = outcome.stdout_bytes.splitlines()
    # Lists of tools and the like are of ours alone, and not of a store.
    assert all(len(line) <= MOST_BYTES for line in written)
    return [json.loads(line) for line in written]


def answers(*arguments, says):
    found = {each["id"]: each for each in talk(*arguments, says=says) if "id" in each}
    results = [found[each["id"]]["result"] for each in says]
    for each in results:
        if not each["isError"]:
            assert json.loads(each["content"][0]["text"]) == each["structuredContent"]
    return [{"error": each["content"][0]["text"]} if each["isError"] else each["structuredContent"] for each in results]
