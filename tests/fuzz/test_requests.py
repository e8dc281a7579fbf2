"""Any header fields and any body in a request of any code give an answer on purpose, never an inner failure."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asking import Asker
from broker.service.dispatcher import INTERNAL_ERROR, handled_methods
from broker.service.request_families import PROCESSORS
from golden_store import unpack

HEADERS = sorted({(int(code), header) for family in PROCESSORS for code, header, _ in handled_methods(family)}, key=str)

NUMBERS = st.sampled_from([0, 1, -1, 2, 11, 12, 13, 300, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)]).map(str)
NAMES = st.sampled_from([
    "TopicTest", "TopicBatch", "TopicEmpty", "BulkTopic", "%RETRY%CG_TAG", "%RETRY%x", "CG_TAG", "CG_SQL",
    "DefaultCluster",
])  # fmt: skip
FLAGS = st.sampled_from(["true", "false", "TAG", "SQL92", "K", "U", "T", "LOWER", "upper", "*", "TagA || TagD", "||"])
VALUES = st.one_of(NUMBERS, NAMES, FLAGS, st.text(max_size=12))
BODIES = st.one_of(
    st.just(b""),
    st.binary(max_size=40),
    st.sampled_from([
        b"{}",
        b"[]",
        b'{"clientID":"c","consumerDataSet":[{"groupName":"CG_TAG","subscriptionDataSet":[{"topic":"TopicTest"}]}]}',
        b'{"clientID":"c","consumerDataSet":[{"groupName":"x","consumeType":9}],"producerDataSet":[{"groupName":""}]}',
        b'{"clientId":"c","group":"g","subscriptionData":{"topic":"t","subString":"||"}}',
    ]),
)  # fmt: skip


@pytest.fixture(scope="module")
def g1(tmp_path_factory: pytest.TempPathFactory) -> Asker:
    return Asker(unpack("store", tmp_path_factory.mktemp("fuzz")))


@st.composite
def requests(draw: st.DrawFn) -> tuple[int, dict[str, str], bytes]:
    code, header = draw(st.sampled_from(HEADERS))
    names = [field.encode_name for field in msgspec.structs.fields(header)]
    fields = {name: draw(VALUES) for name in names if draw(st.integers(0, 9))}
    return code, fields, draw(BODIES)


@given(request=requests())
def test_any_request_is_answered_on_purpose(request: tuple[int, dict[str, str], bytes], g1: Asker) -> None:
    answer = g1.ask(*request)
    assert answer.remark != INTERNAL_ERROR
    assert answer.code == 0 or answer.remark
