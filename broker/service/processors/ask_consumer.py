"""Requests that only a live consumer can answer: its threads and queues, and to consume one message now.

The request is passed on to the member that it names, and the member's answer to the client that asked. Consuming a
message in this way changes no offset and nothing in the store. Source: remoting-protocol §1.14, §2.1, §2.2
(consumerStatus, consumerProgress -s, queryMsgById -g -d).
"""

from collections.abc import Mapping

from broker.service.broker_service import BrokerService
from broker.service.consumers.client_registry import Member
from broker.service.dispatcher import Answer, handles
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Response
from protocol.headers import ConsumeMessageDirectlyResultRequestHeader, GetConsumerRunningInfoRequestHeader
from protocol.message_id import decode_message_id
from storage.files.waiting import Lookup


class AskConsumerProcessor:
    """GET_CONSUMER_RUNNING_INFO and CONSUME_MESSAGE_DIRECTLY."""

    def __init__(self, service: BrokerService) -> None:
        self._service = service

    @handles(RequestCode.GET_CONSUMER_RUNNING_INFO, GetConsumerRunningInfoRequestHeader)
    def get_running_info(self, header: GetConsumerRunningInfoRequestHeader) -> Answer:
        """Ask a member for its options, subscriptions, queues and, if wanted, the stacks of its threads."""
        fields = {
            "consumerGroup": header.consumer_group,
            "clientId": header.client_id,
            "jstackEnable": "true" if header.jstack_enable else "false",
        }
        return self._call(RequestCode.GET_CONSUMER_RUNNING_INFO, header.consumer_group, header.client_id, fields)

    @handles(RequestCode.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectlyResultRequestHeader)
    def consume_directly(self, header: ConsumeMessageDirectlyResultRequestHeader) -> Lookup[Answer]:
        """Have a member consume one message now, and return its result; the id gives the message's physical offset."""
        offset = decode_message_id(header.msg_id or "").physical_offset
        record = yield from self._service.store.record_at_lookup(offset)
        if record is None:
            reason = yield from self._service.store.explain_absence_lookup(offset)
            return Response(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}: {reason}")
        fields = {
            "consumerGroup": header.consumer_group,
            "clientId": header.client_id or "",
            "msgId": header.msg_id or "",
            "brokerName": self._service.broker_name,
        }
        if header.topic is not None:
            fields["topic"] = header.topic
        code = RequestCode.CONSUME_MESSAGE_DIRECTLY
        return self._call(code, header.consumer_group, header.client_id, fields, bytes(record))

    def _call(
        self, code: RequestCode, group: str, client_id: str | None, fields: Mapping[str, str], body: bytes = b""
    ) -> Answer:
        members = self._service.clients.members_of(group)
        member = next((each for each in members if each.client_id == client_id), None)
        if member is None:
            remark = f"The Consumer <{group}> <{client_id}> not online"
            return Response(ResponseCode.SYSTEM_ERROR, remark)
        return self._hand_on(code, group, member, fields, body)

    async def _hand_on(
        self, code: RequestCode, group: str, member: Member, fields: Mapping[str, str], body: bytes
    ) -> Response:
        answer = await self._service.calls.ask(member.connection, code, fields, body)
        if answer is None:
            remark = f"consumer <{group}> <{member.client_id}> Timeout: it did not answer, or is gone"
            return Response(ResponseCode.CONSUME_MSG_TIMEOUT, remark)
        return answer
