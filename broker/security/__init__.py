"""Who may ask for what: accounts and their rights, signatures of requests, the audit log."""
