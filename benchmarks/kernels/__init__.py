"""What the load generator does for each answer, compiled in place with the kernels; no part of what is installed."""
