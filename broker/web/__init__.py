"""The second port, of HTTP: metrics, health, the JSON API and the page."""

from typing import Final

DOOR: Final = ("api", "metrics_collector", "metrics_store", "port", "site", "starting")
