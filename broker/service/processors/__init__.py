"""Request processors: one class a family of request codes, named as RocketMQ names it, one `@handles` method a code."""
