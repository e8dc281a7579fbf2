"""JSON-RPC 2.0 as the Model Context Protocol has it: one message at a time, and the errors that answer it.

Bytes become a request, a notification, or an :class:`RpcError`, which knows the HTTP status that it has there.
"""

from typing import Any, Final, TypeAlias

import msgspec

from protocol.errors import RocketLensError

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object; what the protocol says of its fields is in its schema."""

RpcId: TypeAlias = int | str

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
RESOURCE_NOT_FOUND: Final = -32002
"""Of revisions up to 2025-11-25; later ones say `INVALID_PARAMS`."""
HEADER_MISMATCH: Final = -32020
UNSUPPORTED_VERSION: Final = -32022

LONGEST_REQUEST: Final = 256 * 1024
"""Bytes of one message; no question is nearly as long."""


class RpcError(RocketLensError):
    """A request that gets an error in the place of a result; `status` is the HTTP status of its answer."""

    def __init__(
        self, code: int, message: str, *, data: object = None, status: int = 200, request_id: RpcId | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.data, self.status, self.request_id = code, data, status, request_id

    def answer(self, request_id: RpcId | None) -> JsonObject:
        """The message that is sent; without an id where that of the request could not be read."""
        error = {"code": self.code, "message": str(self)} | ({} if self.data is None else {"data": self.data})
        known = self.request_id if request_id is None else request_id
        return {"jsonrpc": "2.0", **({} if known is None else {"id": known}), "error": error}


class RpcMessage(msgspec.Struct, frozen=True):
    """A request, or a notification, which has no id."""

    method: str
    params: JsonObject
    id: RpcId | None = None

    @property
    def meta(self) -> JsonObject:
        """What is said of the request beside its parameters."""
        meta = self.params.get("_meta")
        return meta if isinstance(meta, dict) else {}

    @property
    def progress_token(self) -> RpcId | None:
        """The token of notifications about how far it is; None where none are wanted."""
        token = self.meta.get("progressToken")
        return token if _is_id(token) else None


def parse_message(data: bytes) -> RpcMessage | None:
    """Read one message; None for a response, which nothing here has asked for. Raises :class:`RpcError`."""
    if len(data) > LONGEST_REQUEST:
        raise RpcError(INVALID_REQUEST, f"a message has at most {LONGEST_REQUEST} bytes", status=413)
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise RpcError(PARSE_ERROR, "this is no JSON", status=400) from None
    if not isinstance(found, dict):
        raise RpcError(INVALID_REQUEST, "expected one JSON-RPC message, an object", status=400)
    given = found.get("id")
    known = given if _is_id(given) else None
    method, params = found.get("method"), found.get("params", {})
    if method is None and known is not None and ("result" in found or "error" in found):
        return None
    if found.get("jsonrpc") != "2.0" or not isinstance(method, str) or ("id" in found and known is None):
        text = 'expected "jsonrpc": "2.0", a method, and an id that is a text or a whole number'
        raise RpcError(INVALID_REQUEST, text, status=400, request_id=known)
    if not isinstance(params, dict):
        raise RpcError(INVALID_PARAMS, "params: expected an object", status=400, request_id=known)
    return RpcMessage(method, params, known)


def _is_id(value: object) -> bool:
    return isinstance(value, int | str) and not isinstance(value, bool)


def result_of(request_id: RpcId | None, result: JsonObject) -> JsonObject:
    """The message with the result of a request."""
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def notification(method: str, params: JsonObject) -> JsonObject:
    """A message that is not answered."""
    return {"jsonrpc": "2.0", "method": method, "params": params}
