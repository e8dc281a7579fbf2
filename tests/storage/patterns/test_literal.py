"""What a regular expression cannot match without."""

from storage.patterns._literal import required_literal


def test_the_longest_text_is_taken_that_must_be_there() -> None:
    for pattern, literal in [
        (r"order-\d+", b"order-"),
        (r"^order$", b"order"),
        (r"(?:foo)+barbaz?", b"barba"),
        (r"x{0,3}yyyy", b"yyyy"),
        (r"[ab]cdef", b"cdef"),
        (r"消息\d", "消息".encode()),
        (r"a(?=bcd)", None),
        (r"(?!abcd)x", None),
        (r"abc|abd", None),
        (r"(?i)abcdef", None),
        (r"(?i:abcdef)gh", None),
        (r"(abcd)?", None),
        (r"\d+", None),
        ("\ud800abc", None),
    ]:
        assert required_literal(pattern) == literal
