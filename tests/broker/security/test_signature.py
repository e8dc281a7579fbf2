"""Signatures as clients make them."""

import base64
import hashlib
import hmac

from broker.security.signature import is_signed, signature_of

SECRET = b"12345678"


def hmac_of(text: bytes) -> bytes:
    return base64.b64encode(hmac.new(SECRET, text, hashlib.sha1).digest())


def test_values_are_joined_in_the_order_of_their_names_and_the_body_follows() -> None:
    fields = {"a": "1", "AccessKey": "ak", "topic": "T", "Signature": "never"}
    assert signature_of(fields, b"", SECRET) == hmac_of(b"ak1T")
    assert signature_of(fields, b"\0body\xff", SECRET) == hmac_of(b"ak1T\0body\xff")


def test_names_are_sorted_as_java_sorts_them() -> None:
    # U+1F511 begins with a surrogate, which comes before U+FF5E in UTF-16 and after it by code point.
    fields = {"\uff5e": "2", "\U0001f511": "1"}
    assert signature_of(fields, b"", SECRET) == hmac_of(b"12")


def test_texts_are_utf_8_and_a_lone_surrogate_a_question_mark() -> None:
    assert signature_of({"a": "订\ud800"}, b"", SECRET) == hmac_of("订?".encode())


def test_a_signature_is_good_over_all_fields_or_those_that_a_client_signed() -> None:
    fields = {"AccessKey": "ak", "SecurityToken": "t", "_UNIQUE_KEY_QUERY": "true", "__ZONE_NAME": "z", "topic": "T"}
    for text in (b"akttruezT", b"aktzT", b"akttrueT", b"aktT", b"aktruezT"):
        assert is_signed(fields | {"Signature": hmac_of(text).decode()}, b"", SECRET), text
    for wrong in ("", "é", hmac_of(b"akT").decode(), hmac_of(b"aktT").decode()[:-1], "\ud800"):
        assert not is_signed(fields | {"Signature": wrong}, b"", SECRET)
