"""The reader of recorded sessions, which everything compared with them rests on."""

import pytest

from golden_frames import Answer, pair_up, parse_java_json, sessions
from protocol.codes import RequestCode, ResponseCode


def frame(source: int, target: int, opaque: int, flag: int, **header: object) -> dict[str, object]:
    return {"src": source, "dst": target, "header": {"code": 0, "opaque": opaque, "flag": flag, **header}, "body": ""}


def test_the_recorded_session_of_g1_is_found_and_whole() -> None:
    (g1,) = [session for session in sessions() if session.name == "g1"]
    exchanges = g1.exchanges()
    assert len(exchanges) == 391
    assert all(exchange.recorded is not None for exchange in exchanges)


def test_an_answer_belongs_to_the_request_with_its_opaque_on_the_same_connection() -> None:
    frames = [
        frame(50, 9876, 1, 0, code=RequestCode.GET_ROUTEINFO_BY_TOPIC),
        frame(51, 9876, 1, 0, code=RequestCode.GET_BROKER_CLUSTER_INFO),
        frame(9876, 51, 1, 1, code=0),
        frame(9876, 50, 1, 1, code=ResponseCode.TOPIC_NOT_EXIST, remark="no"),
    ]
    first, second = pair_up(frames)
    assert first.recorded == Answer(ResponseCode.TOPIC_NOT_EXIST, "no")
    assert second.recorded == Answer(0)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{0:"a",12:[]}', {"0": "a", "12": []}),
        ('{"0":"a","12":[]}', {"0": "a", "12": []}),
        ('{{"topic":"T","queueId":0}:{"maxOffset":9}}', {'{"queueId": 0, "topic": "T"}': {"maxOffset": 9}}),
        (' [ 1 , {"a" : null } , true ] ', [1, {"a": None}, True]),
    ],
)
def test_fastjson_text_becomes_plain_values(text: str, value: object) -> None:
    assert parse_java_json(text) == value


@pytest.mark.parametrize("text", ["{1:2}x", "{1 2}", '{"a":1,"a":2}'])
def test_text_that_is_no_json_of_java_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"at \d+|appears twice|after the JSON|delimiter"):
        parse_java_json(text)
