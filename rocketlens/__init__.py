"""What bears RocketLens's own name: the command, and the check that imports find our packages and nobody else's."""
