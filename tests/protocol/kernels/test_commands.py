"""JSON headers and responses in one pass, beside another reader and writer; and hostile ones."""

import random
import tracemalloc
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frame_garbage import HEADERS, PIECES, changed
from header_oracle import read_header as read_by_other
from header_oracle import written_header
from kernel_memory import Guarded
from protocol import command as commands
from protocol.codes import RequestCode, SerializeType
from protocol.errors import BadCommand, BadHeader
from protocol.frame import FrameDecoder
from protocol.header_fields import field_plans, header_from_texts
from protocol.headers import (
    PullMessageRequestHeader,
    QueryMessageRequestHeader,
    SearchOffsetRequestHeader,
    ViewMessageRequestHeader,
)
from protocol.kernels.commands import read_header
from protocol.kernels.responses import ResponseTemplate

EXAMPLES = 8_000
VALUES = (
    *(b"null", b"true", b"false", b"0", b"-0", b"7", b"1.0", b"1e3", b"1.5", b"1E+2", b"10e-1", b"9223372036854775808"),
    *(
        b'""', b'"7"', b'"-0"', b'"+7"', b'"007"', b'"1e3"', b'" 7"', b'"null"', b'"7a"', b'"a\\u0041\\n"',
        b'"\xc3\xbc"',
    ),
    *(b'"\xff"', b'"\\ud83d\\ude00"', b'"\\ud83d"', b'"\\ude00\\ud83d"', b"[]", b"{}", b'[1,{"a":[null,1.50]}]'),
    *(
        b'"\xef\xbf\xbd"', b'"\xed\xa0\x80"', b"2147483648", b"-2147483648", b"9007199254740993.0", b"1e400",
        b'{"a":1,"a":2}',
    ),
)  # fmt: skip
NAMES = (b"code", b"flag", b"opaque", b"version", b"language", b"remark", b"extFields", b"x", b"\\u0063ode", b"\xff")


def read(header: bytes) -> tuple[object, ...] | None:
    try:
        command = commands.decode_command((0, header, b""))
    except BadCommand:
        return None
    fields = None if isinstance(command.ext_fields, bytes) else commands.ext_fields_of(command)
    return (*(command.code, command.flag, command.opaque, command.version, command.language, command.remark), fields)


def request_with(fields: bytes) -> commands.Command:
    return commands.decode_command((0, b'{"code":12,"opaque":3,"extFields":%b}' % fields, b""))


def test_changed_headers_say_what_another_reader_finds() -> None:
    generator, read_ones = random.Random(11), 0
    sources = [header for form, header in HEADERS if form == 0]
    for _ in range(EXAMPLES):
        header = changed(generator, generator.choice(sources))
        found = read(header)
        assert found == read_by_other(header), header
        read_ones += found is not None
    assert EXAMPLES // 10 < read_ones < EXAMPLES


TYPED = (QueryMessageRequestHeader, ViewMessageRequestHeader, PullMessageRequestHeader, SearchOffsetRequestHeader)
TYPED_NAMES = (*(field.wire_name.encode() for kind in TYPED for field in field_plans(kind)), b"to\\u0070ic", b"x")


def _header(make):
    try:
        return make()
    except BadHeader as error:
        return str(error)


def test_a_typed_header_is_that_of_the_texts_whatever_they_are() -> None:
    generator, made = random.Random(15), 0
    for _ in range(EXAMPLES):
        kind = generator.choice(TYPED)
        needed = [field.wire_name.encode() for field in field_plans(kind) if field.is_required]
        pairs = [(name, b'"7"') for name in needed if generator.random() < 0.98]
        pairs += [(generator.choice(TYPED_NAMES), generator.choice(VALUES)) for _ in range(generator.randrange(4))]
        generator.shuffle(pairs)
        command = request_with(b"{%b}" % b",".join(b'"%b":%b' % pair for pair in pairs))
        texts = commands.ext_fields_of(request_with(b"{%b}" % b",".join(b'"%b":%b' % pair for pair in pairs)))
        expected = _header(partial(header_from_texts, kind, texts))
        assert _header(partial(commands.decode_header, command, kind)) == expected, pairs
        for name, _ in pairs:
            assert commands.ext_field_of(command, name.decode()) == texts.get(name.decode())
        made += isinstance(expected, kind)
    assert made > EXAMPLES // 10


def test_members_of_all_kinds_say_what_another_reader_finds() -> None:
    generator, read_ones = random.Random(12), 0
    for number in range(EXAMPLES):
        # One name never twice: the other reader forgets the first member where a text of the header is ill-formed.
        names = generator.sample(NAMES[:-2] if number % 4 else NAMES, generator.randint(1, 5))
        if b"\\u0063ode" in names:
            names = [name for name in names if name != b"code"]
        elif b"code" not in names:
            names.append(b"code")
        members = [b'"%b"%b' % (name, _value(generator, name)) for name in names]
        header = b"{%b}" % generator.choice((b",", b" , ", b",\n\t")).join(members)
        found = read(header)
        assert found == read_by_other(header), header
        read_ones += found is not None
    assert read_ones > EXAMPLES // 10


def _value(generator: random.Random, name: bytes) -> bytes:
    if name == b"code" and generator.random() < 0.8:
        return b":33"
    if name == b"extFields" and generator.random() < 0.8:
        fields = (b'"%b":%b' % (generator.choice((b"a", b"b", b"\\u0061")), generator.choice(VALUES)) for _ in range(3))
        return b": {%b}" % b", ".join(fields)
    return b":%b" % generator.choice(VALUES + PIECES[:4])


def test_nothing_is_read_behind_the_end_of_a_header() -> None:
    generator, guarded, read_ones = random.Random(13), Guarded(4096), 0
    for number in range(EXAMPLES // 2):
        _, header = generator.choice(HEADERS)
        header = changed(generator, header[:3000]) if number % 3 else header[:3000]
        header = header[: generator.randrange(len(header) + 1)] if number % 2 else header
        try:
            read_header(guarded.put(header), False, b"", commands.Command)
            read_ones += 1
        except BadCommand:
            pass
    assert read_ones > EXAMPLES // 20


def test_nothing_is_read_behind_the_end_of_a_binary_header() -> None:
    generator, guarded, read_ones = random.Random(14), Guarded(4096), 0
    for _ in range(EXAMPLES // 2):
        fields = {f"k{number}": "v" * generator.randrange(9) for number in range(generator.randrange(4))}
        header = bytearray(written_header(1, 33, 0, 5, generator.choice((None, "r", "ü")), fields))
        for _ in range(generator.randrange(3)):
            header[generator.randrange(len(header))] = generator.choice((0, 1, 2, 9, 255))
        end = generator.choice((len(header), generator.randrange(len(header) + 1)))
        try:
            read_header(guarded.put(bytes(header[:end])), True, b"", commands.Command)
            read_ones += 1
        except BadCommand:
            pass
    assert read_ones > EXAMPLES // 20


@pytest.mark.untraced  # at the end of the stack a tracer fails itself
@pytest.mark.parametrize("deep", [b"[" * 900 + b"]" * 900, b'{"a":' * 900 + b"1" + b"}" * 900], ids=["list", "object"])
def test_what_is_nested_deeply_is_passed_over_where_nobody_wants_it(deep: bytes) -> None:
    assert commands.decode_command((0, b'{"code":1,"x":%b,"opaque":7}' % deep, b"")).opaque == 7


FORMS = [SerializeType.JSON, SerializeType.ROCKETMQ]
texts = st.one_of(st.text(max_size=10), st.just('"opaque":1234567890'), st.just("opaque"), st.just("\ud800"))
responses = st.builds(
    commands.Response, code=st.integers(-(2**15), 2**15 - 1), remark=st.none() | texts,
    ext_fields=st.none() | st.dictionaries(texts, texts, max_size=4), body=st.binary(max_size=20),
)  # fmt: skip
opaques = st.integers(-(2**31), 2**31 - 1)


@given(responses, st.sampled_from(FORMS), st.lists(opaques, min_size=1, max_size=4))
def test_every_request_is_answered_as_if_it_were_alone(response, form, asked) -> None:
    try:
        expected = [
            commands.encode_response(
                commands.Command(code=RequestCode.PULL_MESSAGE, opaque=opaque, serialize_type=form), response
            )
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
def test_a_header_is_what_another_writer_writes(response: commands.Response, form: SerializeType, opaque: int) -> None:
    command = commands.Command(code=RequestCode.PULL_MESSAGE, opaque=opaque, serialize_type=form)
    head, remark, fields = commands.encode_response(command, response), response.remark, response.ext_fields
    assert head[8:] == written_header(form, response.code, 1, opaque, remark, fields)
    ((_, _, body),) = FrameDecoder().feed(head + bytes(response.body))
    assert body == response.body


def test_long_names_of_fields_are_not_kept() -> None:
    """Short ones are, so that requests share them; a peer that makes up long ones must not fill the memory."""
    tracemalloc.start()
    try:
        for number in range(1000):
            (name,) = commands.ext_fields_of(
                commands.decode_command((0, b'{"code":1,"extFields":{"%d%s":"x"}}' % (number, b"n" * 65_000), b""))
            )
            assert len(name) > 65_000
        del name
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1_000_000


@pytest.mark.parametrize(("header", "opaque"), [
    (b'{"opaque":5}', 5), (b'{"opaque":"5","code":"x"}', 5), (b'{"code":null,"opaque":-7}', -7),
    (b'{"code":null,"opaque":2147483648}', 0), (b'{"code":1,"opaque":5', 0), (b"", 0),
])  # fmt: skip
def test_what_is_no_command_is_told_to_the_opaque_that_could_be_read(header: bytes, opaque: int) -> None:
    for form in (0, 2):
        if form == 0 or header:
            with pytest.raises(BadCommand) as caught:
                commands.decode_command((form, header, b""))
            assert caught.value.opaque == opaque


@pytest.mark.parametrize("raw", [b"[]", b"1", b'"x"', b"true"])
def test_fields_that_are_no_object_are_refused_when_they_are_asked_for(raw: bytes) -> None:
    with pytest.raises(BadHeader, match="is no JSON object") as caught:
        commands.ext_fields_of(request_with(raw))
    assert (caught.value.field, caught.value.value) == ("extFields", raw.decode())


@given(st.text(max_size=30), st.text(max_size=30))
def test_any_text_is_read_whichever_of_its_characters_are_escaped(name: str, text: str) -> None:
    def escaped(plain: str) -> bytes:
        units = plain.encode("utf-16-be", "surrogatepass")
        return b"".join(b"\\u%b" % units[place : place + 2].hex().encode() for place in range(0, len(units), 2))

    assert commands.ext_fields_of(request_with(b'{"%b":"%b"}' % (escaped(name), escaped(text)))) == {name: text}


def test_every_character_is_written_as_another_writer_does() -> None:
    for form in FORMS:
        for start in range(0, 0x800, 64):
            text = "".join(map(chr, range(start, start + 64)))
            head = commands.encode_response(commands.Command(code=RequestCode.PULL_MESSAGE, serialize_type=form),
                                            commands.Response(1, text, {text: text[::-1]}))  # fmt: skip
            assert head[8:] == written_header(form, 1, 1, 0, text, {text: text[::-1]})
