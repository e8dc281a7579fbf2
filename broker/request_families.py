"""The list of all processor families; importing it fails when two of them answer one request code."""

from typing import Any

from broker.dispatcher import check_families
from broker.processors.query_message import QueryMessageProcessor

PROCESSORS: tuple[type[Any], ...] = (QueryMessageProcessor,)
check_families(PROCESSORS)
