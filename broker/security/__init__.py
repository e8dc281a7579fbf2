"""Who may ask for what: accounts and their rights, signatures of requests, the audit log."""

from typing import Final

DOOR: Final = (
    "accounts",
    "answer_rights",
    "audit_log",
    "failed_attempts",
    "guard",
    "needs",
    "signature",
    "topic_rights",
    "watched_files",
)
