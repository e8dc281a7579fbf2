"""The `rocketlens` command, one module a subcommand; nothing else imports this package."""
