"""Check keys that come with each request: of HTTP Basic, or a signature in the metadata of a call by gRPC.

White lists go by a client's address. Of a named account the secret is always asked for, also where the broker's port
asks for no signature (whiteRemoteAddress). Proofs are compared in the same time whatever is wrong with them. Guessing
is bounded (:mod:`broker.security._failed_attempts`), and each guess is a line of the audit log.
"""

import hashlib
import hmac
import logging
import math
from collections.abc import Callable
from typing import Final

from broker.security._failed_attempts import FailedAttempts
from broker.security.accounts import Account, Accounts
from broker.security.audit_log import AuditLog, Look, now
from broker.security.watched_files import Watched
from protocol.errors import RocketLensError

logger = logging.getLogger(__name__)

NO_SECRET: Final = b"\x00no account has this secret"
"""Secret that proofs are compared with where there is no such account, so that the comparison takes as long."""

Prove = Callable[[bytes], bytes]
"""Returns what a client shows that knows this secret."""


class LoginRefused(RocketLensError):
    """No keys came with a request, or wrong ones. `is_noted`: the audit log needs no further line about it."""

    def __init__(self, message: str, *, is_noted: bool) -> None:
        super().__init__(message)
        self.is_noted = is_noted


class TooManyLogins(RocketLensError):
    """Too many wrong keys came from an address; it may try again after `retry_seconds`."""

    def __init__(self, retry_seconds: int) -> None:
        super().__init__(f"too many wrong keys came from this address: try again in {retry_seconds} s")
        self.retry_seconds = retry_seconds


class Logins:
    """The accounts of a port, and the failed attempts at it; for one thread."""

    def __init__(self, port: str, accounts: Watched[Accounts], audit_log: AuditLog | None, broker: str) -> None:
        """Log wrong keys in `audit_log` under the name of `broker`; `port` is what the server's own log calls it."""
        self._port, self.accounts, self._audit_log, self._broker = port, accounts, audit_log, broker
        self._failed = FailedAttempts()

    def is_white(self, address: str | None) -> bool:
        """Whether a client needs no account."""
        return address is not None and self.accounts.current.is_white(address)

    def log_in(
        self, address: str | None, client: str, asked_for: str, access_key: str, proof: bytes, prove: Prove
    ) -> Account:
        """The account of an access key whose `proof` is what `prove` makes of its secret.

        Raises `LoginRefused`, `TooManyLogins`, and `AuditError` where a failed login cannot be written down. `client`
        is the address in the audit log, `address` that by which attempts are counted, None if it is not known.
        """
        wait_seconds = self._failed.wait_seconds(address, access_key)
        if wait_seconds:
            raise TooManyLogins(math.ceil(wait_seconds))
        account = self.accounts.current.by_access_key.get(access_key)
        # Digests, since the time to compare depends on the length of what is compared with.
        expected = _digest(prove(NO_SECRET if account is None else account.secret_key))
        if hmac.compare_digest(_digest(proof), expected) and account is not None:
            self._failed.note_success(address, access_key)
            return account
        is_guess = self._failed.note_failed(address, access_key, proof)
        text = "the access key or the secret key is wrong"
        if is_guess:
            self._note(asked_for, client, access_key if account is not None else None, text)
            if self._failed.wait_seconds(address, access_key):
                logger.warning(
                    "%s: too many failed logins from %s; further ones are refused for a while", self._port, client
                )
        raise LoginRefused(text, is_noted=is_guess)

    def _note(self, asked_for: str, client: str, access_key: str | None, remark: str) -> None:
        """Log a failed login. A name that no account has is left out: it may be a secret in the wrong field."""
        if self._audit_log is not None:
            asked = {} if access_key is None else {"accessKey": access_key}
            look = Look(now(), self._broker, None, client, asked_for, "UNAUTHORIZED", asked, 0, (), remark)
            self._audit_log.write(look)


def _digest(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()
