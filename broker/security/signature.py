"""Request signatures: HMAC-SHA1 over the values of a request's fields, in the order of their names, and its body.

Clients sign different sets of fields, and add some after signing (remoting-protocol §6.1): a signature is good if it is
that of any of these sets. Every signature is compared in the same time, whatever is wrong with it.

It is separate from the guard, which calls it, so that the only cryptography here can be read and tested alone.
"""

import base64
import hashlib
import hmac
from collections.abc import Iterator, Mapping

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"

LEFT_OUT = (
    frozenset[str](),
    frozenset({"_UNIQUE_KEY_QUERY"}),
    frozenset({"__ZONE_NAME", "__ZONE_MODE"}),
    frozenset({"_UNIQUE_KEY_QUERY", "__ZONE_NAME", "__ZONE_MODE"}),
    frozenset({SECURITY_TOKEN}),
)
"""Fields that clients of some versions do not sign: all are; what the client library adds behind the signing hook;
what a later hook adds; both; the token, by Go."""


def signature_of(fields: Mapping[str, str], body: bytes, secret_key: bytes) -> bytes:
    """The signature of all these fields but `Signature`, in base64."""
    # Java sorts by UTF-16 units, which is another order only beyond the basic plane.
    names = sorted(fields, key=None if all(map(str.isascii, fields)) else _utf16)
    text = "".join(fields[name] for name in names if name != SIGNATURE)
    digest = hmac.new(secret_key, text.encode("utf-8", "replace") + body, hashlib.sha1).digest()
    return base64.b64encode(digest)


def is_signed(fields: Mapping[str, str], body: bytes, secret_key: bytes) -> bool:
    """Whether the fields and the body bear a good signature of this key."""
    received = fields.get(SIGNATURE, "").encode("utf-8", "replace")
    good = [hmac.compare_digest(signature_of(signed, body, secret_key), received) for signed in _signed_sets(fields)]
    return any(good)


def _signed_sets(fields: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """The sets of fields that may have been signed, each once."""
    seen: set[frozenset[str]] = set()
    for left_out in LEFT_OUT:
        present = left_out.intersection(fields)
        if present not in seen:
            seen.add(present)
            yield {name: value for name, value in fields.items() if name not in present} if present else fields


def _utf16(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")
