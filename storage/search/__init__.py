"""Search of a store by content: what messages say, not only what they are filed under.

    for step in search(store, Criteria(topic="orders", contains=b"4711"), limit=50):
        ...

See :func:`storage.search.engine.search`; the conditions are in :class:`~storage.search.criteria.Criteria`.
"""
