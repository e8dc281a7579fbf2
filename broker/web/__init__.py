"""The second port, of HTTP: metrics and health."""

from typing import Final

DOOR: Final = ("api", "metrics_collector", "metrics_store", "port", "site")
