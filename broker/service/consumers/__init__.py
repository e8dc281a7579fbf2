"""Who consumes what, and how far they have come: groups, their members, offsets, locks and subscriptions."""
