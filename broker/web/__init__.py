"""The second port, of HTTP: metrics, health, the JSON API and the page."""
