"""Signatures of calls: in their metadata is the HMAC-SHA1 of the client's date and time.

    authorization: MQv2-HMAC-SHA1 Credential=ACCESSKEY, SignedHeaders=x-mq-date-time, Signature=0A1B…
    x-mq-date-time: 20261127T193000Z

Clients write hex digits in either case, some a region behind the access key (`ACCESSKEY//Rocketmq`), and dates in two
forms. What is read is what the official proxy reads; as there, the date is not compared with the clock.
"""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final, NamedTuple

AUTHORIZATION: Final = "authorization"
DATE_TIME: Final = "x-mq-date-time"


class CallSignature(NamedTuple):
    """The access key of a call, what it signed, and the signature; all empty for a call that is not signed."""

    access_key: str = ""
    signed: bytes = b""
    signature: bytes = b""

    def prove(self, secret_key: bytes) -> bytes:
        """The signature by a secret."""
        return hmac.new(secret_key, self.signed, hashlib.sha1).digest()


def signature_of(metadata: Mapping[str, str]) -> CallSignature:
    """Read the signature of a call; one that cannot be read is none."""
    _, _, pairs = metadata.get(AUTHORIZATION, "").partition(" ")
    fields = dict(pair.strip().partition("=")[::2] for pair in pairs.split(","))
    access_key = fields.get("Credential", "").partition("/")[0]
    try:
        signature = bytes.fromhex(fields.get("Signature", ""))
        signed = metadata.get(DATE_TIME, "").encode()
    except ValueError:
        return CallSignature()
    return CallSignature(access_key, signed, signature) if access_key and signed else CallSignature()
