"""A response encoded once for many requests is, for each, what it would be if it were encoded for that one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from header_oracle import written_header
from protocol.codes import RequestCode, SerializeType
from protocol.command import Command, Response, encode_response
from protocol.errors import BadCommand
from protocol.frame import FrameDecoder
from protocol.kernels.responses import ResponseTemplate

FORMS = [SerializeType.JSON, SerializeType.ROCKETMQ]
texts = st.one_of(st.text(max_size=10), st.just('"opaque":1234567890'), st.just("opaque"), st.just("\ud800"))
responses = st.builds(
    Response,
    code=st.integers(-(2**15), 2**15 - 1),
    remark=st.none() | texts,
    ext_fields=st.none() | st.dictionaries(texts, texts, max_size=4),
    body=st.binary(max_size=20),
)
opaques = st.integers(-(2**31), 2**31 - 1)


@given(responses, st.sampled_from(FORMS), st.lists(opaques, min_size=1, max_size=4))
def test_every_request_is_answered_as_if_it_were_alone(
    response: Response, form: SerializeType, asked: list[int]
) -> None:
    try:
        expected = [
            encode_response(Command(code=RequestCode.PULL_MESSAGE, opaque=opaque, serialize_type=form), response)
            for opaque in asked
        ]
    except BadCommand:
        with pytest.raises(BadCommand):
            ResponseTemplate(form, response)
        return
    template = ResponseTemplate(form, response)
    assert [template.head(opaque) for opaque in asked] == expected
    assert template.body == response.body
    assert template.size >= max(map(len, expected)) + len(response.body)


@given(responses, st.sampled_from(FORMS), opaques)
def test_a_header_is_what_another_writer_writes(response: Response, form: SerializeType, opaque: int) -> None:
    command = Command(code=RequestCode.PULL_MESSAGE, opaque=opaque, serialize_type=form)
    head, remark, fields = encode_response(command, response), response.remark, response.ext_fields
    assert head[8:] == written_header(form, response.code, 1, opaque, remark, fields)
    ((_, _, body),) = FrameDecoder().feed(head + bytes(response.body))
    assert body == response.body


def test_every_character_is_written_as_another_writer_does() -> None:
    for form in FORMS:
        for start in range(0, 0x800, 64):
            text = "".join(map(chr, range(start, start + 64)))
            head = encode_response(
                Command(code=RequestCode.PULL_MESSAGE, serialize_type=form), Response(1, text, {text: text[::-1]})
            )
            assert head[8:] == written_header(form, 1, 1, 0, text, {text: text[::-1]})
