"""A file of accounts as users of RocketMQ 4.x have it, and requests signed as its clients sign them."""

import os
import time

from broker.security.signature import ACCESS_KEY, SIGNATURE, signature_of
from protocol.command import encode_request

READER, READER_SECRET = "reader-key", "reader-secret-1"
ADMIN, ADMIN_SECRET = "admin-key", "admin-secret-1"
DEFAULTS, DEFAULTS_SECRET = "defaults-key", "12345678"
BOUNDED, BOUNDED_SECRET = "bounded-key", "bounded-secret"
WHITE, WHITE_SECRET = "white-key", "white-secret-1"

PLAIN_ACL = f"""\
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.{{7,8}}

accounts:
  - accessKey: {READER}
    secretKey: {READER_SECRET}
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
    topicPerms:
      - TopicTest=SUB
      - both=PUB|SUB
      - mine=PUB
      - denied=DENY
    groupPerms:
      # by the group's name
      - readers=SUB
      - oldReaders=SUB
      - deniedGroup=DENY

  - accessKey: {ADMIN}
    secretKey: {ADMIN_SECRET}
    admin: true
    defaultTopicPerm: PUB|SUB
    defaultGroupPerm: PUB|SUB

  - accessKey: {DEFAULTS}
    secretKey: {DEFAULTS_SECRET}
    defaultTopicPerm: SUB
    defaultGroupPerm: SUB
    topicPerms:
      - denied=DENY

  - accessKey: {BOUNDED}
    secretKey: {BOUNDED_SECRET}
    admin: true
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - TopicTest=SUB

  - accessKey: {WHITE}
    secretKey: {WHITE_SECRET}
    whiteRemoteAddress: 172.16.*.*
"""

SECRETS = (READER_SECRET, ADMIN_SECRET, DEFAULTS_SECRET, BOUNDED_SECRET, WHITE_SECRET)


def write_accounts(path, text=PLAIN_ACL, age_seconds=60.0):
    """Write a file of accounts that was left alone for some time already, so that it counts at once."""
    path.write_text(text)
    set_age(path, age_seconds)
    return path


def set_age(path, age_seconds) -> None:
    """Have a file look as if it was written to so many seconds ago."""
    written = time.time_ns() - int(age_seconds * 1e9)
    os.utime(path, ns=(written, written))


def signed_fields(fields, access_key, secret, body=b""):
    named = {**fields, ACCESS_KEY: access_key}
    return named | {SIGNATURE: signature_of(named, body, secret.encode()).decode()}


def signed_request(code, fields, access_key, secret, body=b"", opaque=1):
    return encode_request(code, signed_fields(fields, access_key, secret, body), opaque=opaque, body=body)
