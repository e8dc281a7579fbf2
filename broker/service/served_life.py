"""A message's life as a server knows it: with the offsets that groups committed here, and what they subscribe to."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from broker.service.broker_service import BrokerService
from protocol.errors import RocketLensError
from protocol.mask import NO_MASK, Mask
from storage.life.message_life import MessageLife, find_life
from storage.life.verdicts import KnownFilter, registered_filters


def served_life(
    service: BrokerService,
    unique_key: str,
    topic: str | None,
    trace_topics: Iterable[str] = (),
    *,
    may_see_group: Callable[[str], bool] = lambda _group: True,
    mask: Mask = NO_MASK,
) -> MessageLife:
    """As :func:`find_life`, without waiting for a scan that is not finished; of groups those that may be seen."""
    unknown: list[str] = []

    def committed(topic: str, queue_id: int) -> list[tuple[str, int]]:
        offsets = service.offsets
        try:
            known = [(group, offsets.committed(group, topic, queue_id)) for group in offsets.groups_of(topic)]
        except RocketLensError as error:
            unknown.append(str(error))
            return []
        return [(group, offset) for group, offset in known if offset is not None and may_see_group(group)]

    found = find_life(
        service.store,
        unique_key,
        topic,
        trace_topics,
        waits=False,
        committed=committed,
        filters=partial(_filter_of, service),
        mask=mask,
    )
    return replace(found, incomplete=found.incomplete or next(iter(unknown), None))


def _filter_of(service: BrokerService, group: str, topic: str) -> KnownFilter | None:
    """What the live members of a group subscribe to, else what the store's broker had registered."""
    subscription = service.clients.subscription(group, topic)
    if subscription is not None:
        return KnownFilter(subscription.sub_string, subscription.expression_type)
    return registered_filters(service.store.config)(group, topic)
