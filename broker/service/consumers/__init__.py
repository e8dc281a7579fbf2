"""Consumer groups: their members, subscriptions, offsets and locks."""
