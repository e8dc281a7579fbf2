"""Accounts: access keys, secret keys and what they permit, from a file as RocketMQ 4.x has it (plain_acl.yml).

A secret is known to its account alone: it is in no log, no error and no `repr`.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntFlag
from pathlib import Path
from typing import Any, TypeAlias

from broker.security._address_patterns import Matches, parse_address_pattern
from broker.security.watched_files import Watched
from protocol.errors import ConfigError
from protocol.system_topics import RETRY_PREFIX

logger = logging.getLogger(__name__)

Members: TypeAlias = dict[str, Any]
"""The members of a YAML map as the file has them; each is checked where it is read, so that an error can name it."""

SHORTEST_KEY = 7
"""Characters of an access key and of a secret key, as in RocketMQ."""

SETTLE_SECONDS = 2.0
"""For how long a file of accounts must have been left alone before it counts: half of one is a file too."""


ALL_RIGHTS = "defaultTopicPerm: PUB|SUB and defaultGroupPerm: PUB|SUB"
"""The members that give an account all rights, as the file has them."""


class Permission(IntFlag):
    """What may be done with a topic or as a group: send to it, or consume and query."""

    NONE = 0
    PUB = 4
    SUB = 8
    ANY = 12


WORDS = {
    "DENY": Permission.NONE,
    "PUB": Permission.PUB,
    "SUB": Permission.SUB,
    "PUB|SUB": Permission.ANY,
    "SUB|PUB": Permission.ANY,
}


@dataclass(frozen=True, slots=True)
class Account:
    """One access key. `permissions` are by topic, and by retry topic for groups; the defaults hold for all others."""

    access_key: str
    secret_key: bytes = field(repr=False)
    is_admin: bool
    is_white: Matches = field(repr=False)
    default_topic: Permission
    default_group: Permission
    permissions: Mapping[str, Permission]

    @property
    def is_unbounded(self) -> bool:
        """Whether nothing is denied to this account: an administrator with all rights by default and no exceptions.

        Only what the file says in so many words gives rights: a list that is missing may have been cut off.
        """
        is_open = self.default_topic == Permission.ANY == self.default_group
        return self.is_admin and is_open and not self.permissions

    @property
    def has_no_resource(self) -> bool:
        """Whether this is an administrator without a right to any topic or group."""
        rights = (self.default_topic, self.default_group, *self.permissions.values())
        return self.is_admin and not any(rights)

    @property
    def reads_every_topic(self) -> bool:
        """Whether there is no topic whose messages are denied to this account."""
        topics = (needed for name, needed in self.permissions.items() if not name.startswith(RETRY_PREFIX))
        return all(bool(needed & Permission.SUB) for needed in (self.default_topic, *topics))

    def permits(self, resource: str, needed: Permission) -> bool:
        """Whether one of the needed rights to a topic, or to a group by its retry topic, is given."""
        default = self.default_group if resource.startswith(RETRY_PREFIX) else self.default_topic
        return bool(self.permissions.get(resource, default) & needed)


@dataclass(frozen=True, slots=True)
class Accounts:
    """All accounts by access key, and who needs none."""

    by_access_key: Mapping[str, Account]
    white: tuple[Matches, ...] = field(repr=False)

    def is_white(self, host: str) -> bool:
        """Whether an address may do anything without a signature."""
        return any(matches(host) for matches in self.white)


def watched_accounts(path: Path, *, admin_has_all: bool = False) -> Watched[Accounts]:
    """The accounts of a file, read anew when it has changed and was left alone. Raises `ConfigError`."""
    return Watched(
        f"accounts in {path}", [path], lambda: load_accounts(path, admin_has_all=admin_has_all), SETTLE_SECONDS
    )


def load_accounts(path: Path, *, admin_has_all: bool = False) -> Accounts:
    """Read a file of accounts. Raises `ConfigError` naming the file and what is wrong, never a secret.

    With `admin_has_all` an administrator for whom the file lists neither topics nor groups has all rights, whatever its
    defaults, as at a broker up to 4.9.
    """
    try:
        text = path.read_bytes()
        if not text.endswith(b"\n"):
            raise ConfigError("does not end in a newline, so it may be only the first part of a file")
        accounts = _accounts_of(_yaml_of(text), admin_has_all=admin_has_all)
    except (OSError, ConfigError) as error:
        raise ConfigError(f"--acl {path}: {_reason(error)}") from None
    for access_key in sorted(key for key, each in accounts.by_access_key.items() if each.has_no_resource):
        logger.warning(
            "--acl %s: administrator %s has no right to any topic or group; to grant all rights, write %s, or give "
            "--acl-admin-has-all, by which admin: true means what it does at a broker 4.9",
            path,
            access_key,
            ALL_RIGHTS,
        )
    return accounts


def load_credentials(path: Path) -> tuple[str, str]:
    """Read access key and secret key from a file like RocketMQ's conf/tools.yml.

    Raises `ConfigError` naming the file and what is wrong, never a secret.
    """
    try:
        content = _yaml_of(path.read_bytes())
        if not isinstance(content, dict):
            raise ConfigError("expected accessKey and secretKey")
        access_key, secret_key = _text(content.get("accessKey")), _text(content.get("secretKey"))
        if not access_key or not secret_key:
            raise ConfigError("expected accessKey and secretKey")
    except (OSError, ConfigError) as error:
        raise ConfigError(f"{path}: {_reason(error)}") from None
    return access_key, secret_key


def _reason(error: OSError | ConfigError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def _yaml_of(text: bytes) -> Any:
    # Imported here: a server without accounts starts without it.
    import yaml

    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        place = getattr(error, "problem_mark", None)
        line = f" in line {place.line + 1}" if place is not None else ""
        # Not the error itself: it quotes the text around the place.
        raise ConfigError(f"not YAML{line}") from None


def _accounts_of(content: Any, *, admin_has_all: bool) -> Accounts:
    if not isinstance(content, dict):
        raise ConfigError("expected accounts")
    accounts = [_account_of(entry, number) for number, entry in enumerate(_list(content, "accounts"), 1)]
    if admin_has_all:
        accounts = [_as_of_4_9(account) for account in accounts]
    by_access_key = {account.access_key: account for account in accounts}
    if len(by_access_key) < len(accounts):
        raise ConfigError("an access key is listed twice")
    white = [parse_address_pattern(_text(entry)) for entry in _list(content, "globalWhiteRemoteAddresses")]
    return Accounts(by_access_key, tuple(white))


def _account_of(entry: Any, number: int) -> Account:
    if not isinstance(entry, dict):
        raise ConfigError(f"account {number} is not a mapping")
    access_key, secret_key = _text(entry.get("accessKey")), _text(entry.get("secretKey"))
    if min(len(access_key), len(secret_key)) < SHORTEST_KEY:
        raise ConfigError(f"account {number}: accessKey and secretKey have {SHORTEST_KEY} characters or more")
    admin = entry.get("admin")
    if admin not in (None, True, False):
        raise ConfigError(f"account {access_key}: admin is true or false")
    try:
        return Account(
            access_key,
            secret_key.encode(),
            bool(admin),
            parse_address_pattern(_text(entry.get("whiteRemoteAddress"))),
            _permission(entry.get("defaultTopicPerm")),
            _permission(entry.get("defaultGroupPerm")),
            _permissions(entry),
        )
    except ConfigError as error:
        raise ConfigError(f"account {access_key}: {error}") from None


def _as_of_4_9(account: Account) -> Account:
    """The account with the rights that a broker 4.9 gives it: all of them to an administrator without lists."""
    is_unlisted = account.is_admin and not account.permissions
    return replace(account, default_topic=Permission.ANY, default_group=Permission.ANY) if is_unlisted else account


def _permissions(entry: Members) -> dict[str, Permission]:
    permissions: dict[str, Permission] = {}
    for member, prefix in (("topicPerms", ""), ("groupPerms", RETRY_PREFIX)):
        for text in map(_text, _list(entry, member)):
            name, equals, word = text.partition("=")
            if not equals or not name.strip():
                raise ConfigError(f"{member}: {text!r} is not like name=SUB")
            permissions[prefix + name.strip().removeprefix(prefix)] = _permission(word)
    return permissions


def _permission(word: Any) -> Permission:
    if word is None:
        return Permission.NONE
    permission = WORDS.get(_text(word).strip())
    if permission is None:
        raise ConfigError(f"permission {word!r}: expected {', '.join(WORDS)}")
    return permission


def _list(members: Members, name: str) -> list[Any]:
    value = members.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise ConfigError(f"{name} is not a list")
    return value


def _text(value: Any) -> str:
    """A scalar as RocketMQ reads it: numbers without quotes are texts too."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise ConfigError("a key, address or permission is neither a text nor a number: put it into quotes")
