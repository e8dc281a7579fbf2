"""The site of the HTTP port: `/metrics`, `/healthz`, `/readyz`, and, if there are any, the API and the page.

GET and HEAD alone, but for what assistants POST (`serve --mcp`), never a traceback, and no redirect. A request has to
name a host that is ours, and to come from who may ask, before it gets even the answer that nothing is at its path, so
that foreign pages can read nothing. Health is answered under any name and by any way, since probes use any, and says
nothing of what is served.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from broker.metrics.metrics_rows import HOLES, SEARCH_LEFT, MetricsRows
from broker.service.lookup_pool import LookupPool
from broker.web._page_files import page_routes
from broker.web.api.access import Access, advice
from broker.web.api.application import Api
from broker.web.api.errors import refusal_of
from protocol.errors import RocketLensError

RENDER_SECONDS: Final = 10.0
"""How long a scrape may take; Prometheus gives up after as long by default."""

NO_STORE: Final = {"Cache-Control": "no-store"}

Render = Callable[[str], tuple[bytes, str]]
"""Function that makes body and content type for an Accept header; it waits for the disk."""


class Site:
    """The application of one server. It has a thread of its own, so that figures are served while look-ups hang."""

    def __init__(
        self,
        rows: MetricsRows,
        render: Render,
        api: Api | None = None,
        before_render: Callable[[], None] | None = None,
        more: Sequence[Route] = (),
    ) -> None:
        """`before_render` is called on the event loop before figures are read; `more` is answered besides."""
        self._rows, self._render = rows, render
        self.api = api
        self._access = Access() if api is None else api.access
        self._pool = LookupPool(1)
        self._rendering: dict[str, asyncio.Future[tuple[bytes, str]]] = {}
        self._is_stopping = False
        self._before_render = before_render
        self._more = more

    @property
    def body_paths(self) -> frozenset[bytes]:
        """The paths at which a request may have a body."""
        return frozenset(each.path.encode() for each in self._more if "POST" in (each.methods or ()))

    @property
    def is_idle(self) -> bool:
        """Whether its threads have nothing to do."""
        return len(self._pool) == 0 and (self.api is None or self.api.is_idle)

    def application(self) -> Starlette:
        """The routes, for an ASGI server."""
        answers = (("/metrics", self.metrics), ("/healthz", self.healthz), ("/readyz", self.readyz))
        routes: list[BaseRoute] = [Route(path, answer, methods=["GET"]) for path, answer in answers]
        routes += self._more
        if self.api is not None:
            routes += [Mount("/api/v1", self.api.application()), *page_routes(self.api.access)]
        application = Starlette(routes=routes, exception_handlers={HTTPException: self._refuse})
        application.router.redirect_slashes = False
        return application

    def note_stopping(self) -> None:
        """Say from now on that the server is not ready any more."""
        self._is_stopping = True

    def close(self) -> None:
        """Answer no more."""
        self._pool.close()
        if self.api is not None:
            self.api.close()

    async def metrics(self, request: Request) -> Response:
        """All figures, in the form that the client asks for; scrapes at the same time share one answer."""
        try:
            self._access.admit_metrics(request)
        except RocketLensError as error:
            refused = refusal_of(error)
            return PlainTextResponse(f"{error}\n", refused.status, NO_STORE | advice(refused, request))
        accept = "openmetrics" if "application/openmetrics-text" in request.headers.get("accept", "") else ""
        future = self._rendering.get(accept)
        if future is None:
            if self._before_render is not None:
                self._before_render()
            future = self._pool.run(None, lambda: self._render("application/openmetrics-text" if accept else ""))
            self._rendering[accept] = future
            future.add_done_callback(lambda _done: self._rendering.pop(accept, None))
        try:
            body, content_type = await asyncio.wait_for(asyncio.shield(future), RENDER_SECONDS)
        except TimeoutError:
            return PlainTextResponse("the store does not answer: its disk may hang\n", 503, NO_STORE)
        return Response(body, headers={"Content-Type": content_type, **NO_STORE})

    async def _refuse(self, request: Request, error: Exception) -> Response:
        """Answer 404 for an unknown path and 405 for another method, only to clients that may ask for the page."""
        assert isinstance(error, HTTPException)
        try:
            self._access.admit_page(request)
        except RocketLensError as refusal:
            refused = refusal_of(refusal)
            return PlainTextResponse(f"{refusal}\n", refused.status, NO_STORE | advice(refused, request))
        return PlainTextResponse(error.detail, error.status_code, NO_STORE | dict(error.headers or {}))

    async def healthz(self, _request: Request) -> Response:
        """Answer 200: the process lives and its event loop turns."""
        return PlainTextResponse("ok\n", headers=NO_STORE)

    async def readyz(self, _request: Request) -> Response:
        """Answer 200 while clients can connect to all workers, 503 otherwise."""
        serving = self._rows.are_serving()
        is_ready = all(serving) and not self._is_stopping
        status = "stopping" if self._is_stopping else "ready" if is_ready else "starting"
        answer = {"status": status, "workers": len(serving), "workers_serving": sum(serving)}
        totals = [self._rows.totals(number) for number in range(self._rows.stores)]
        if holes := sum(int(each[HOLES]) for each in totals):
            left = sum(int(each[SEARCH_LEFT]) for each in totals)
            answer |= {"queue_holes_searching": holes, "queue_search_left_bytes": left}
        return JSONResponse(answer, 200 if is_ready else 503, NO_STORE)
