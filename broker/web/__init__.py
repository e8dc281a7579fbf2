"""The second port, of HTTP: metrics and health."""
