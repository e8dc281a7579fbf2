"""Who may speak to the server and how: TLS, PROXY headers, request signatures."""

from typing import Final

DOOR: Final = ("accounts", "answer_rights", "audit_log", "guard", "needs", "signature", "watched_files")
