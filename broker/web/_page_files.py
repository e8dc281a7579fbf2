"""The page: its files, read once, and the headers under which a browser runs nothing but them.

Each view of the page has a path of its own, and all of them get the same document, so that any can be opened, reloaded
and sent to a colleague.
"""

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from broker.web.api.access import Access, advice
from broker.web.api.errors import refusal_of
from protocol.errors import RocketLensError

Admit: TypeAlias = Callable[[Request], None]
"""Check of a request, which raises for one that is not to be answered."""

DIRECTORY: Final = Path(__file__).with_name("page")

VIEWS: Final = (
    *("/", "/find", "/message", "/topics", "/topic", "/tail", "/search", "/groups", "/dead-letters"),
    *("/light-topics", "/pending", "/space", "/health"),
)

ICON: Final = "/favicon.ico"
"""Path at which a browser looks for the icon of an address that is no page, such as an answer of the API.

Some look without the keys that they have, and log the refusal. It is no secret, so nobody has to log in for it.
"""

TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
        "trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-cache",
}
"""Allow only our own scripts and styles, no other servers, no frames of other pages, and no caching without a check."""


@dataclass(frozen=True, slots=True)
class PageFile:
    """One file as it is sent; `tag` changes with its content."""

    content: bytes
    content_type: str
    tag: str


def read_page() -> dict[str, PageFile]:
    """All files of the page by name."""
    return {path.name: _read(path) for path in sorted(DIRECTORY.iterdir()) if path.suffix in TYPES}


def page_routes(access: Access) -> list[BaseRoute]:
    """A route for each file, for each view, and for the icon."""
    files = read_page()
    admit = access.admit_page
    routes: list[BaseRoute] = [_route(f"/page/{name}", file, admit) for name, file in files.items()]
    routes.append(_route(ICON, files["icon.svg"], access.admit_icon))
    return routes + [_route(view, files["index.html"], admit) for view in VIEWS]


def _read(path: Path) -> PageFile:
    content = path.read_bytes()
    return PageFile(content, TYPES[path.suffix], f'"{hashlib.sha256(content).hexdigest()[:16]}"')


def _route(path: str, file: PageFile, admit: Admit) -> Route:
    return Route(path, _sender(file, admit), methods=["GET"])


def _sender(file: PageFile, admit: Admit) -> Callable[[Request], Awaitable[Response]]:
    async def send(request: Request) -> Response:
        try:
            admit(request)
        except RocketLensError as error:
            refused = refusal_of(error)
            return Response(refused.body(), refused.status, HEADERS | advice(refused, request), "application/json")
        headers = {**HEADERS, "ETag": file.tag}
        if request.headers.get("if-none-match") == file.tag:
            return Response(b"", 304, headers)
        return Response(file.content, 200, headers, file.content_type)

    return send
