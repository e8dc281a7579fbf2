"""Options of `serve` by which it is watched: page, metrics, health, the log."""

from collections.abc import Callable

import click
import msgspec

from broker.cli.log_format import FORMATS, TEXT
from broker.cli.options import endpoint, gathered
from broker.cli.port_options import Network, network
from broker.config import DEFAULT_MILLISECONDS
from broker.endpoint import Endpoint


def http_endpoint(text: str) -> Endpoint:
    """Read `HOST:PORT`, or a port alone, which is one of the loopback address."""
    port = text.strip().removeprefix(":")
    return endpoint(f"127.0.0.1:{port}" if port.isdigit() else text)


class WatchArguments(msgspec.Struct, frozen=True):
    """The values of these options."""

    http: Endpoint | None
    http_hosts: tuple[str, ...]
    http_proxies: tuple[Network, ...]
    slow_query_milliseconds: float
    log_format: str


_WATCH_OPTIONS = (
    click.option(
        "--http",
        type=http_endpoint,
        metavar="[HOST:]PORT",
        help="Serve the page, its JSON API (/api/v1/), /metrics (Prometheus), /healthz and /readyz here by "
        "plain HTTP; without HOST on the loopback address. With --acl the page and the API ask for the "
        "same keys; metrics and health are open to everybody.",
    ),
    click.option(
        "--http-host",
        "http_hosts",
        metavar="NAME",
        multiple=True,
        help="A name under which browsers open the page and Prometheus reads /metrics, in addition to IP "
        "addresses, localhost and this machine's name; repeatable. Other names are refused, except for "
        "/healthz and /readyz.",
    ),
    click.option(
        "--trusted-proxy",
        "http_proxies",
        type=network,
        metavar="IP|NETWORK",
        multiple=True,
        help="An HTTP proxy in front of the page; the white lists of --acl use the client's address in its "
        "X-Forwarded-For; repeatable.",
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
