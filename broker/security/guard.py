"""Lets a request pass to its handler if it is signed by an account that may make it.

The fields that were checked are those that the handler gets: the request is written anew from them, so that no oddity
of its header can mean one thing here and another there. Refusals have the code and the words of a broker 5.x.
"""

from collections.abc import Iterable

import msgspec

from broker.dispatcher import Answer, ClientConnection, Dispatcher
from broker.security.accounts import RETRY_PREFIX, Account, Accounts, Permission
from broker.security.needs import needs_of
from broker.security.signature import ACCESS_KEY, is_signed
from broker.security.watched_files import Watched
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Command, Response, ext_fields_of
from protocol.errors import RocketLensError
from protocol.message import decode_messages

_encode = msgspec.json.Encoder().encode

RECORD_CODES = frozenset({RequestCode.VIEW_MESSAGE_BY_ID, RequestCode.QUERY_MESSAGE})
"""Codes whose answers are records that an offset or an id chose: their topic is known only then."""


class Guard:
    """Admits requests by the accounts of a file."""

    def __init__(self, accounts: Watched[Accounts]) -> None:
        self._accounts = accounts

    def admit(self, command: Command, connection: ClientConnection) -> Account | Response | None:
        """The account that makes a request, None for who needs none; a refusal if it may not.

        Raises `ProtocolError` for a header or body that cannot be read.
        """
        accounts = self._accounts.current
        host = connection.peer_address.host
        if accounts.is_white(host):
            return None
        fields = ext_fields_of(command)
        name = fields.get(ACCESS_KEY, "")
        if not name:
            return _refusal("username cannot be null.")
        account = accounts.by_access_key.get(name)
        if account is None:
            return _refusal(f"User:{name} is not found.")
        if account.is_white(host):
            return None
        if not is_signed(fields, command.body, account.secret_key):
            return _refusal("check signature failed.")
        command.ext_fields = msgspec.Raw(_encode(fields))
        needs = needs_of(command.code, fields, command.body)
        if needs.admin and not account.is_admin:
            return _refusal(f"User:{name} has no permission for request code {command.code}: it is for administrators.")
        for resource, permission in needs.rights.items():
            if not account.permits(resource, permission):
                return _no_permission(account, resource, host)
        return account


class GuardedDispatcher(Dispatcher):
    """A dispatcher that has every request admitted first."""

    def __init__(self, guard: Guard, processors: Iterable[object], lookup_threads: int = 4) -> None:
        super().__init__(processors, lookup_threads)
        self._guard = guard

    def dispatch(self, command: Command, connection: ClientConnection) -> Answer:
        """Answer one request, or refuse it."""
        try:
            account = self._guard.admit(command, connection)
        except RocketLensError as error:
            return self.failure(command, error)
        if isinstance(account, Response):
            return account
        answer = super().dispatch(command, connection)
        if account is None or account.is_unbounded or command.code not in RECORD_CODES:
            return answer
        return self._checked(account, answer, connection)

    def _checked(self, account: Account, answer: Answer, connection: ClientConnection) -> Answer:
        """An answer of records, unless one of them is of a topic that is not for this account."""
        assert isinstance(answer, Response)
        if answer.code != ResponseCode.SUCCESS or not answer.body:
            return answer
        try:
            topics = {message.topic for message in decode_messages(answer.body, check_crc=False)}
        except RocketLensError as error:
            return Response(ResponseCode.SYSTEM_ERROR, str(error))
        denied = [topic for topic in sorted(topics) if not account.permits(topic, Permission.SUB)]
        return _no_permission(account, denied[0], connection.peer_address.host) if denied else answer


def _no_permission(account: Account, resource: str, host: str) -> Response:
    kind = "Group" if resource.startswith(RETRY_PREFIX) else "Topic"
    name = resource.removeprefix(RETRY_PREFIX)
    return _refusal(
        f"User:{account.access_key} has no permission to access {kind}:{name} from {host}, no matched policies."
    )


def _refusal(remark: str) -> Response:
    return Response(ResponseCode.NO_PERMISSION, remark)
