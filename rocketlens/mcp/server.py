"""The protocol: which methods there are in each revision, and what they answer; by itself, without any transport.

Two revisions are spoken. Of 2026-07-28 each request says by itself which revision it is of (`_meta`), and nothing is
remembered. Of 2025-11-25, and the two before it that differ in nothing which is used here, a client begins with
`initialize`; nothing needs to be remembered of that either. Source: modelcontextprotocol.io/specification.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from protocol.errors import ConfigError, RocketLensError
from protocol.printable import one_line
from rocketlens.mcp.foreign import cut
from rocketlens.mcp.guides import GUIDES, INSTRUCTIONS, TEMPLATES, asked_by
from rocketlens.mcp.rpc import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    RESOURCE_NOT_FOUND,
    UNSUPPORTED_VERSION,
    JsonObject,
    RpcError,
    RpcMessage,
)
from rocketlens.mcp.tool_context import ToolContext

MODERN: Final = "2026-07-28"
LEGACY: Final = ("2025-11-25", "2025-06-18", "2025-03-26")

META: Final = "io.modelcontextprotocol/"

CANCELLED: Final = "notifications/cancelled"

KEPT_MILLISECONDS: Final = 3_600_000
"""How long a client may keep what does not change while a server runs."""

CAPABILITIES: Final[JsonObject] = {"tools": {}, "resources": {}, "prompts": {}}

CACHED: Final[JsonObject] = {"ttlMs": KEPT_MILLISECONDS, "cacheScope": "public"}


class ToolCall(NamedTuple):
    """Work that a request asks for: the tool, what it shows in an audit log, and what is to be done on a thread.

    `work` brings the fields of an answer; `result` and `refused` make of them, or of the error, what is sent.
    """

    name: str
    arguments: JsonObject
    work: Callable[[ToolContext], JsonObject]
    result: Callable[[JsonObject], JsonObject]
    refused: Callable[[RocketLensError, str], JsonObject]

    def run(self, context: ToolContext) -> JsonObject:
        """The result of the call. Raises :class:`RpcError`."""
        try:
            fields = self.work(context)
        except RocketLensError as error:
            return self.refused(error, said(error))
        return self.result(fields)


def is_modern(message: RpcMessage) -> bool:
    """Whether a request says by itself which revision it is of."""
    return f"{META}protocolVersion" in message.meta


class McpServer:
    """Answers requests; it remembers nothing of a client, and is safe to use from several threads."""

    def __init__(self, version: str) -> None:
        self._info = {"name": "rocketlens", "title": "RocketLens", "version": version}

    def answer(self, message: RpcMessage) -> JsonObject | ToolCall:
        """The result of a request, or the work that brings it (then :meth:`complete` it). Raises :class:`RpcError`."""
        modern = is_modern(message)
        if modern:
            self._check_meta(message)
        method = message.method
        found = _METHODS.get(method)
        if found is None or (method in _MODERN_ONLY and not modern) or (method in _LEGACY_ONLY and modern):
            # To clients of the older revision 404 says that a session is over.
            raise RpcError(METHOD_NOT_FOUND, f"there is no method {method[:100]!r}", status=404 if modern else 200)
        result = found(self, message)
        return result if isinstance(result, ToolCall) else self.complete(message, result)

    def complete(self, message: RpcMessage, result: JsonObject) -> JsonObject:
        """A result with what every one has in the revision of its request."""
        if not is_modern(message):
            return {name: value for name, value in result.items() if name not in ("ttlMs", "cacheScope")}
        return {**result, "resultType": "complete", "_meta": {f"{META}serverInfo": self._info}}

    def _check_meta(self, message: RpcMessage) -> None:
        """Check what a request of the newer revision says of itself."""
        asked = message.meta[f"{META}protocolVersion"]
        if asked != MODERN:
            if not isinstance(asked, str):
                raise RpcError(INVALID_PARAMS, f"_meta: {META}protocolVersion: expected a text", status=400)
            data = {"supported": [MODERN], "requested": asked}
            raise RpcError(UNSUPPORTED_VERSION, "unsupported protocol version", data=data, status=400)
        if not isinstance(message.meta.get(f"{META}clientCapabilities"), dict):
            raise RpcError(INVALID_PARAMS, f"_meta: {META}clientCapabilities is missing, or no object", status=400)
        if not isinstance(message.meta.get(f"{META}clientInfo", {}), dict):
            raise RpcError(INVALID_PARAMS, f"_meta: {META}clientInfo: expected an object", status=400)

    # ------------------------------------------------------------------ methods

    def _initialize(self, message: RpcMessage) -> JsonObject:
        asked = message.params.get("protocolVersion")
        if not isinstance(asked, str):
            raise RpcError(INVALID_PARAMS, "protocolVersion: expected a text")
        return {
            "protocolVersion": asked if asked in LEGACY else LEGACY[0],
            "capabilities": CAPABILITIES,
            "serverInfo": self._info,
            "instructions": INSTRUCTIONS,
        }

    def _discover(self, _message: RpcMessage) -> JsonObject:
        return {
            "supportedVersions": [MODERN],
            "capabilities": CAPABILITIES,
            "instructions": INSTRUCTIONS,
            **CACHED,
        }

    def _ping(self, _message: RpcMessage) -> JsonObject:
        return {}

    def _tools(self, message: RpcMessage) -> JsonObject:
        _refuse_cursor(message)
        from rocketlens.mcp.tools import TOOLS  # what starts a server asks no store yet

        return {"tools": [each.described() for each in TOOLS], **CACHED}

    def _call(self, message: RpcMessage) -> ToolCall:
        from rocketlens.mcp.tools import TOOL_OF_NAME  # as above

        name, arguments = message.params.get("name"), message.params.get("arguments", {})
        tool = TOOL_OF_NAME.get(name) if isinstance(name, str) else None
        if tool is None:
            raise RpcError(INVALID_PARAMS, f"unknown tool {str(name)[:100]!r}, there are {', '.join(TOOL_OF_NAME)}")
        if not isinstance(arguments, dict):
            raise RpcError(INVALID_PARAMS, "arguments: expected an object")

        return ToolCall(
            tool.name,
            arguments,
            lambda context: tool.call(context, tool.read(arguments)),
            lambda fields: {"content": [_text(_json(fields))], "structuredContent": fields, "isError": False},
            lambda _error, words: {"content": [_text(words)], "isError": True},
        )

    def _resources(self, message: RpcMessage) -> JsonObject:
        _refuse_cursor(message)
        return {"resources": [], **CACHED}

    def _templates(self, message: RpcMessage) -> JsonObject:
        _refuse_cursor(message)
        return {"resourceTemplates": list(TEMPLATES), **CACHED}

    def _read(self, message: RpcMessage) -> ToolCall:
        from rocketlens.mcp.tools import TOOL_OF_NAME  # as above

        uri = message.params.get("uri")
        asked = asked_by(uri)
        missing = INVALID_PARAMS if is_modern(message) else RESOURCE_NOT_FOUND
        if asked is None:
            data = {"uri": uri[:1000]} if isinstance(uri, str) else None
            raise RpcError(missing, "there is no such resource, see the templates", data=data)
        name, arguments = asked
        tool = TOOL_OF_NAME[name]

        def refused(error: RocketLensError, words: str) -> JsonObject:
            if isinstance(error, ConfigError):
                raise RpcError(INVALID_PARAMS, words) from None
            raise RpcError(missing, words, data={"uri": uri}) from None

        def result(fields: JsonObject) -> JsonObject:
            if not (fields.get("message") or fields.get("queues") or fields["truncated"]):
                words = fields.get("reason") or "; ".join(fields["notes"]) or "nothing is there"
                raise RpcError(missing, words, data={"uri": uri})
            text = {"uri": uri, "mimeType": "application/json", "text": _json(fields)}
            return {"contents": [text], "ttlMs": 0, "cacheScope": "private"}

        return ToolCall(name, arguments, lambda context: tool.call(context, tool.read(arguments)), result, refused)

    def _prompts(self, message: RpcMessage) -> JsonObject:
        _refuse_cursor(message)
        return {"prompts": [each.described() for each in GUIDES.values()], **CACHED}

    def _prompt(self, message: RpcMessage) -> JsonObject:
        name = message.params.get("name")
        guide = GUIDES.get(name) if isinstance(name, str) else None
        if guide is None:
            raise RpcError(INVALID_PARAMS, f"unknown prompt {str(name)[:100]!r}, there are {', '.join(GUIDES)}")
        return guide.filled(message.params.get("arguments", {}))


_METHODS: Final[dict[str, Callable[[McpServer, RpcMessage], JsonObject | ToolCall]]] = {
    "initialize": McpServer._initialize,
    "ping": McpServer._ping,
    "server/discover": McpServer._discover,
    "tools/list": McpServer._tools,
    "tools/call": McpServer._call,
    "resources/list": McpServer._resources,
    "resources/templates/list": McpServer._templates,
    "resources/read": McpServer._read,
    "prompts/list": McpServer._prompts,
    "prompts/get": McpServer._prompt,
}

_LEGACY_ONLY: Final = frozenset({"initialize", "ping"})
_MODERN_ONLY: Final = frozenset({"server/discover"})


def _refuse_cursor(message: RpcMessage) -> None:
    """Raise the error of a cursor of a list that has one page."""
    if message.params.get("cursor") is not None:
        raise RpcError(INVALID_PARAMS, "this is no cursor of this list, which has one page")


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _json(fields: JsonObject) -> str:
    return msgspec.json.encode(fields).decode()


def said(error: RocketLensError) -> str:
    """An error as an assistant reads it: on one line, cut; it may quote what was asked, or a name out of a store."""
    return cut(one_line(str(error)), 2000)
