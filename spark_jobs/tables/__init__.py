"""Tables that grow: each run appends what came to the log since the last one, and commits its position with it."""
