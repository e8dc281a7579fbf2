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
    """What these options say."""

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
        help="Serve the page, its JSON API (/api/v1/), /metrics (Prometheus), /healthz and /readyz here by plain HTTP; "
        "without HOST on the loopback address. With --acl the page and the API ask for the same keys; figures are "
        "told to everybody.",
    ),
    click.option(
        "--http-host",
        "http_hosts",
        metavar="NAME",
        multiple=True,
        help="A name under which browsers reach the page, and Prometheus the figures, besides IP addresses, localhost "
        "and this machine's name; may be given several times. Others are refused, but for health.",
    ),
    click.option(
        "--trusted-proxy",
        "http_proxies",
        type=network,
        metavar="IP|NETWORK",
        multiple=True,
        help="An HTTP proxy before the page that is believed which address it asks for (X-Forwarded-For), for the "
        "white lists of --acl; may be given several times.",
    ),
    click.option(
        "--slow-query",
        "slow_query_milliseconds",
        type=click.FloatRange(0, 86_400_000),
        default=DEFAULT_MILLISECONDS,
        show_default=True,
        metavar="MILLISECONDS",
        help="Log requests that take longer, each with its reason; 0 logs none.",
    ),
    click.option(
        "--log-format",
        type=click.Choice(FORMATS),
        default=TEXT,
        show_default=True,
        help="Lines of the log on stderr: for people, or a JSON object each.",
    ),
)


def watch_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add them to a command, which gets them as `watch`."""
    command = gathered(watch=WatchArguments)(command)
    for option in reversed(_WATCH_OPTIONS):
        command = option(command)
    return command
