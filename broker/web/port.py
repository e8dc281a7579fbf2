"""The HTTP port of a server that serves: its site, in the server's own event loop."""

import ssl
from collections.abc import Sequence

from broker.net.listeners import Listener, listen
from broker.security.watched_files import Watched
from broker.web._http_server import HttpServer
from broker.web.site import Site


class WebPort:
    """Serves a `site` on bound sockets, with a `context` by TLS; all methods are the event loop's."""

    def __init__(
        self, site: Site, listeners: Sequence[Listener], context: Watched[ssl.SSLContext] | None = None
    ) -> None:
        self.site = site
        self.context = context
        self.server = HttpServer(site.application(), context, site.body_paths)
        self._listeners = listeners

    @property
    def is_idle(self) -> bool:
        """Whether its threads have nothing to do."""
        return self.site.is_idle

    async def start(self) -> None:
        """Accept connections. Raises `CannotListen` when an address went to somebody else since it was bound."""
        for listener in self._listeners:
            listen(listener)
        self.server.start([listener.socket for listener in self._listeners])

    def note_stopping(self) -> None:
        """Say from now on that the server is not ready any more."""
        self.site.note_stopping()

    async def stop(self) -> None:
        """Finish what is being answered, for a second at most, and close."""
        await self.server.stop()
        self.site.close()
