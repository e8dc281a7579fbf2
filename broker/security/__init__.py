"""Who may speak to the server and how: TLS, PROXY headers, request signatures."""
