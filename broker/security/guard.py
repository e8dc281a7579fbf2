"""Lets a request pass to its handler if it is signed by an account that may make it.

The fields that were checked are those that the handler gets: the request is written anew from them, so that no oddity
of its header can mean one thing here and another there. Refusals have the code and the words of a broker 5.x.
"""

from collections.abc import Callable, Iterable
from types import GeneratorType
from typing import Final, TypeAlias, cast

from broker.limits import DEFAULT_LIMITS
from broker.security.accounts import ALL_RIGHTS, Account, Accounts, Permission
from broker.security.needs import group_resource, needs_of
from broker.security.signature import ACCESS_KEY, is_signed
from broker.security.topic_rights import permits_topic
from broker.security.watched_files import Watched
from broker.service.denials import NO_KEY, UNKNOWN_KEY, Denials, Want
from broker.service.dispatcher import Answer, ClientConnection, Dispatcher
from protocol.codes import ResponseCode
from protocol.command import Command, Response, ext_fields_of
from protocol.printable import one_line
from protocol.system_topics import RETRY_PREFIX
from storage.files.waiting import Lookup
from storage.life.origins import Origins

LONGEST_NAME: Final = 255
"""Characters of a topic or group that are noted where a right to it is wanting."""

CheckFirst: TypeAlias = "Callable[[Command, ClientConnection, Account], Lookup[Response | None]]"
"""Why an admitted request of an account is refused nevertheless, before it has any effect; None where it is not."""


class Guard:
    """Admits requests by the accounts of a file."""

    def __init__(
        self, accounts: Watched[Accounts], origins: Iterable[Origins] = (), denials: Denials | None = None
    ) -> None:
        """Take `accounts`, and the `origins` of every store of which a request may name a topic.

        What is wanting is noted in `denials`; None means in ones of its own.
        """
        self._accounts, self._origins = accounts, tuple(origins)
        self._denials = Denials() if denials is None else denials

    def admit(self, command: Command, connection: ClientConnection) -> Lookup[Account | Response | None]:
        """The account that makes a request, None for a client that needs none; a refusal if it may not make it.

        Raises `ProtocolError` for a header or body that cannot be read.
        """
        account = self.account_of(command, connection)
        fields = ext_fields_of(command)
        if isinstance(account, Response):
            self._denials.note(UNKNOWN_KEY if fields.get(ACCESS_KEY) else NO_KEY)
        if account is None or isinstance(account, Response):
            return account
        name = account.access_key
        if not is_signed(fields, command.body, account.secret_key):
            self._denials.note(Want(name, "a signature by its secretKey: the client has another one"))
            return _refusal("check signature failed.")
        needs = yield from needs_of(command.code, fields, command.body)
        if needs.admin and not account.is_admin:
            self._denials.note(Want(name, f"what administrators may (request code {command.code})", "admin: true"))
            return _refusal(f"User:{name} has no permission for request code {command.code}: it is for administrators.")
        for topic, permission in needs.topics.items():
            if not permits_topic(account, topic, self._origins, permission):
                self.note_denied(account, topic, permission)
                return no_permission(account, topic, connection.peer_address.host)
        for group, permission in needs.groups.items():
            if not account.permits(group_resource(group), permission):
                self.note_denied(account, group_resource(group), permission)
                return no_permission(account, group_resource(group), connection.peer_address.host)
        return account

    def note_denied(self, account: Account, resource: str, needed: Permission = Permission.SUB) -> None:
        """Note that an account lacks a right to a topic, or to a group by its retry topic."""
        is_group, word = resource.startswith(RETRY_PREFIX), "PUB" if needed == Permission.PUB else "SUB"
        kind, member = ("group", "groupPerms") if is_group else ("topic", "topicPerms")
        name = one_line(resource.removeprefix(RETRY_PREFIX))[:LONGEST_NAME]
        add = ALL_RIGHTS if account.has_no_resource else f"{member}: - {name}={word}"
        self._denials.note(Want(account.access_key, f"{word} of {kind} {name}", add))

    def account_of(self, command: Command, connection: ClientConnection) -> Account | Response | None:
        """The account that a request names, None for a client that needs none; a refusal if the account is unknown.

        Checks no signature. Raises `ProtocolError` for a header that cannot be read.
        """
        accounts = self._accounts.current
        host = connection.peer_address.host
        if accounts.is_white(host):
            return None
        name = ext_fields_of(command).get(ACCESS_KEY, "")
        if not name:
            return _refusal("username cannot be null.")
        account = accounts.by_access_key.get(name)
        if account is None:
            return _refusal(f"User:{name} is not found.")
        return None if account.is_white(host) else account


class GuardedDispatcher(Dispatcher):
    """A dispatcher that has every request admitted first; `check_first` also looks at what the request refers to."""

    def __init__(
        self,
        guard: Guard,
        processors: Iterable[object],
        lookup_threads: int = 4,
        body_limit: int = DEFAULT_LIMITS.body_bytes,
        check_first: "CheckFirst | None" = None,
    ) -> None:
        super().__init__(processors, lookup_threads, body_limit)
        self._guard, self._check_first = guard, check_first

    def handle(self, command: Command, connection: ClientConnection) -> Lookup[Answer]:
        """What the method of an admitted request makes of it, or the refusal."""
        if self.is_unread(command.code, len(command.body)):
            return self.unread(command)
        account = yield from self._guard.admit(command, connection)
        if isinstance(account, Response):
            return account
        if account is not None and self._check_first is not None:
            refused = yield from self._check_first(command, connection, account)
            if refused is not None:
                return refused
        handling = super().handle(command, connection)
        return (yield from handling) if isinstance(handling, GeneratorType) else cast(Answer, handling)


def no_permission(account: Account, resource: str | None, host: str) -> Response:
    """The answer to an account that lacks a right, in the words of a broker 5.x; to a resource that is not named, None.

    What a request does not name is none of the account's business.
    """
    wanted = "what the answer holds"
    if resource is not None:
        kind = "Group" if resource.startswith(RETRY_PREFIX) else "Topic"
        wanted = f"{kind}:{resource.removeprefix(RETRY_PREFIX)}"
    return _refusal(f"User:{account.access_key} has no permission to access {wanted} from {host}, no matched policies.")


def _refusal(remark: str) -> Response:
    return Response(ResponseCode.NO_PERMISSION, remark)
