"""The reader of recorded sessions, which everything compared with them rests on."""

import pytest

from golden_frames import Answer, pair_up, parse_java_json, sessions, value_of
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


def test_what_a_server_asks_its_clients_is_left_out() -> None:
    frames = [
        frame(50, 10911, 1, 0),
        frame(10911, 50, 7, 2, code=RequestCode.NOTIFY_CONSUMER_IDS_CHANGED),
        frame(10911, 50, 1, 1),
    ]
    assert len(pair_up(frames)) == 1


def test_a_request_that_nobody_answered_is_refused() -> None:
    with pytest.raises(ValueError, match="no answer was recorded"):
        pair_up([frame(50, 10911, 1, 0)])


def test_an_empty_remark_and_none_are_the_same() -> None:
    frames = [frame(50, 10911, 1, 0), frame(10911, 50, 1, 1, remark="")]
    assert pair_up(frames)[0].recorded == Answer(0, None)


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


def test_lists_from_java_sets_compare_in_any_order_and_others_do_not() -> None:
    assert value_of(b'{"topicList":["b","a"]}') == value_of(b'{"topicList":["a","b"]}')
    assert value_of(b'{"clusterAddrTable":{"C":["b","a"]}}') == value_of(b'{"clusterAddrTable":{"C":["a","b"]}}')
    assert value_of(b'{"queueData":[2,1]}') != value_of(b'{"queueData":[1,2]}')


def test_a_properties_text_compares_by_its_entries_and_records_by_their_bytes() -> None:
    assert value_of(b"b=1\na=x=y\n") == {"a": "x=y", "b": "1"}
    assert value_of(b"\0\0\1\x39records") == b"\0\0\1\x39records"
