"""Options of `serve` by which it is watched: page, metrics, health, the log."""

from collections.abc import Callable

import click
import msgspec

from broker.config import DEFAULT_MILLISECONDS, HTTP_AUTH, HttpAuth
from broker.endpoint import Endpoint
from rocketlens.cli.log_format import FORMATS, TEXT
from rocketlens.cli.options import gathered, own_endpoint
from rocketlens.cli.port_options import Network, network


class WatchArguments(msgspec.Struct, frozen=True):
    """The values of these options."""

    grpc: Endpoint | None
    http: Endpoint | None
    http_hosts: tuple[str, ...]
    http_proxies: tuple[Network, ...]
    http_auth: str
    http_tls: bool
    mcp: bool
    slow_query_milliseconds: float
    log_format: str

    @property
    def auth(self) -> HttpAuth:
        """Who has to log in at the HTTP port, as the server has it."""
        return HttpAuth(self.http_auth, self.http_tls)


_WATCH_OPTIONS = (
    click.option(
        "--grpc",
        type=own_endpoint,
        metavar="[HOST:]PORT",
        help="Serve Apache's gRPC services, Admin and the reading part of MessagingService, here (docs/grpc.md); "
        "without HOST on the loopback address.",
    ),
    click.option(
        "--http",
        type=own_endpoint,
        metavar="[HOST:]PORT",
        help="Serve the page, its JSON API (/api/v1/), /metrics (Prometheus), /healthz and /readyz here; without HOST "
        "on the loopback address.",
    ),
    click.option(
        "--http-host",
        "http_hosts",
        metavar="NAME",
        multiple=True,
        help="A name under which the page and /metrics are read, besides IP addresses, localhost and this machine's "
        "name; repeatable.",
    ),
    click.option(
        "--trusted-proxy",
        "http_proxies",
        type=network,
        metavar="IP|NETWORK",
        multiple=True,
        help="An HTTP proxy in front of the page, whose X-Forwarded-For has the client's address; repeatable.",
    ),
    click.option(
        "--http-auth",
        type=click.Choice(HTTP_AUTH),
        default=HTTP_AUTH[0],
        show_default=True,
        help="How accounts of --acl log in: page asks for their keys; basic has the browser ask before anything is "
        "shown, by --http-tls, from this machine or through a --trusted-proxy. basic-metrics: /metrics is for "
        "administrators too.",
    ),
    click.option(
        "--http-tls",
        is_flag=True,
        help="Serve --http by TLS with the certificate of --tls-cert; without TLS only health is answered.",
    ),
    click.option(
        "--mcp",
        is_flag=True,
        help="Answer assistants (Model Context Protocol) at /mcp of --http, with the accounts and masks of the page.",
    ),
    click.option(
        "--slow-query",
        "slow_query_milliseconds",
        type=click.FloatRange(0, 86_400_000),
        default=DEFAULT_MILLISECONDS,
        show_default=True,
        metavar="MILLISECONDS",
        help="Log each request that takes longer, with the reason; 0 logs none.",
    ),
    click.option(
        "--log-format",
        type=click.Choice(FORMATS),
        default=TEXT,
        show_default=True,
        help="Format of the log on stderr: lines for people, or one JSON object on each line.",
    ),
)


def watch_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add these options to a command, which gets their values as `watch`."""
    command = gathered(watch=WatchArguments)(command)
    for option in reversed(_WATCH_OPTIONS):
        command = option(command)
    return command
