"""What a server reports of itself: figures that all workers share, and how Prometheus gets them."""

from typing import Final

DOOR: Final = ("metrics_meter", "metrics_rows", "slow_queries")
