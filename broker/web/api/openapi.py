"""The OpenAPI 3.1 description of the API, made from the questions and answers that it is built of."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from broker.web.api.endpoint import ApiEndpoint
from broker.web.api.errors import ErrorAnswer

Part: TypeAlias = dict[str, Any]
"""A JSON object of an OpenAPI document, whose shape that standard gives."""

TEMPLATE: Final = "#/components/schemas/{name}"

REFUSALS: Final = {
    "400": "A parameter is missing, unknown or invalid.",
    "401": "Keys are required, and none or wrong ones were sent.",
    "403": "The account may not see this, or the Host header does not name this server.",
    "404": "The store does not have it; the message says what was searched.",
    "405": "Only GET and HEAD are answered.",
    "503": "Too many requests at once, or the disk does not answer; ask again later.",
}

ABOUT: Final = """\
The data of the page, for programs. Times in answers are milliseconds since 1970, offsets are RocketMQ's. A list that
does not show everything has a cursor: send the same request with it to continue, with fixed times in it, since `-1h` is
another time in every request. A request that may take long is answered after `milliseconds` with what was done by then,
and also with a cursor. To stop it, send no further request. Nothing is ever written."""


def describe(endpoints: Sequence[ApiEndpoint], version: str) -> bytes:
    """The whole description as JSON."""
    answers = [endpoint.answer for endpoint in endpoints if endpoint.answer is not bytes]
    _, components = msgspec.json.schema_components([*answers, ErrorAnswer], ref_template=TEMPLATE)
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "RocketLens",
                "version": version,
                "description": ABOUT,
                "license": {"name": "Apache-2.0"},
            },
            "servers": [{"url": "/api/v1"}],
            "security": [{}, {"keys": []}],
            "paths": {endpoint.path: {"get": _operation(endpoint)} for endpoint in endpoints},
            "components": {
                "schemas": components,
                "securitySchemes": {
                    "keys": {
                        "type": "http",
                        "scheme": "basic",
                        "description": "Access key and secret key of an account of --acl.",
                    }
                },
            },
        }
    )


def _operation(endpoint: ApiEndpoint) -> Part:
    is_file = endpoint.answer is bytes
    answer: Mapping[str, Any] = (
        {"application/octet-stream": {}}
        if is_file
        else {"application/json": {"schema": {"$ref": TEMPLATE.format(name=endpoint.answer.__name__)}}}
    )
    error = {"application/json": {"schema": {"$ref": TEMPLATE.format(name="ErrorAnswer")}}}
    return {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "description": (endpoint.question.__doc__ or "").strip(),
        "parameters": _parameters(endpoint),
        "responses": {
            "200": {"description": "The body." if is_file else "The answer.", "content": answer},
            **{status: {"description": text, "content": error} for status, text in REFUSALS.items()},
        },
    }


def _parameters(endpoint: ApiEndpoint) -> list[Part]:
    """The query parameters, from the question's fields."""
    name = endpoint.question.__name__
    _, components = msgspec.json.schema_components([endpoint.question], ref_template=TEMPLATE)
    schema = components[name]
    required = schema.get("required", [])
    return [_parameter(field, _plain(each), field in required) for field, each in schema["properties"].items()]


def _parameter(name: str, schema: Part, is_required: bool) -> Part:
    """Describe a query parameter; the description of its type becomes that of the parameter."""
    about = schema.pop("description", "")
    return {"name": name, "in": "query", "description": about, "required": is_required, "schema": schema}


def _plain(schema: Part) -> Part:
    """Remove null from the types of a parameter: a query has no null, the parameter is left out."""
    choices = [each for each in schema.get("anyOf", []) if each != {"type": "null"}]
    if choices:
        rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
        return {**rest, **choices[0]}
    return dict(schema)
