"""No secret gets through, however it is quoted, and nothing that a terminal obeys."""

import json
import logging
import os
import subprocess
import sys
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import redaction
from protocol.printable import as_text, one_line, printable
from protocol.redaction import HIDDEN, SHORTEST, keep_secret, keep_secrets, redacted

SECRETS = st.text(st.characters(codec="utf-8"), min_size=SHORTEST, max_size=40).filter(lambda text: text not in HIDDEN)
WAYS = [str, repr, json.dumps, lambda text: json.dumps(text, ensure_ascii=False), quote, lambda text: f"Bearer {text}!"]


@pytest.fixture(autouse=True)
def nothing_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_spellings", {})
    monkeypatch.setattr(redaction, "_has_begun", True)


@given(secret=SECRETS, before=st.text(max_size=20), way=st.sampled_from(WAYS))
def test_a_secret_is_in_no_text_whatever_way_it_is_quoted(secret: str, before: str, way: type[str]) -> None:
    redaction._spellings.clear()
    keep_secret(secret)
    said = redacted(f"{before}{way(secret)}")
    assert secret not in said.replace(HIDDEN, "")
    assert way(secret) not in said


def test_options_are_known_by_their_names_also_within_others() -> None:
    for name in [
        "secret", "token", "password", "s3.secret-access-key", "AWS_SECRET_ACCESS_KEY", "account_key", "sas_token",
        "connection_string", "credential", "header.Authorization", "spark.hadoop.fs.s3a.secret.key", "client_secret",
        "spark.hadoop.fs.azure.account.key.a.dfs.core.windows.net", "key",
    ]:  # fmt: skip
        keep_secrets({"client_kwargs": {name: "a-hidden-value"}, "region_name": "a-shown-value"})
        assert redacted("a-hidden-value a-shown-value") == f"{HIDDEN} a-shown-value"


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [("uri", "sqlite:////tmp/catalog.db", True), ("uri", "https://catalog.example/v1", True),
     ("uri", "postgresql+psycopg2://me:hidden-word@db/catalog", False), ("type", "rest", True)],
)  # fmt: skip
def test_a_uri_is_shown_but_for_its_password(name: str, value: str, kept: bool) -> None:
    keep_secrets({name: value})
    assert (redacted(f"cannot reach {value}") == f"cannot reach {value}") == kept
    assert "hidden-word" not in redacted("the word is hidden-word") or kept


def test_passwords_in_urls_are_hidden_unasked() -> None:
    assert one_line("s3://key:hidden@bucket/store: refused\nby http://a:b@c") == (
        f"s3://key:{HIDDEN}@bucket/store: refused by http://a:{HIDDEN}@c"
    )
    assert redacted("http://host:8080/a@b") == "http://host:8080/a@b"


def test_log_records_and_traces_have_no_secret() -> None:
    code = (
        "import logging\nfrom protocol.redaction import keep_secret\nkeep_secret('hidden-word')\n"
        "logging.basicConfig()\nlogging.warning('with %s', 'hidden-word')\n"
        "try:\n    raise ValueError('hidden-word')\nexcept ValueError:\n    logging.exception('failed')\n"
        "raise KeyError('hidden-word')"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr
    assert "hidden" not in said
    assert said.count("Traceback") == 2
    assert f"KeyError: '{HIDDEN}'" in said
    assert logging.getLogger().isEnabledFor(logging.WARNING)


@given(st.text())
def test_nothing_that_a_terminal_obeys_comes_through(text: str) -> None:
    assert all(character.isprintable() or character in "\n\t" for character in printable(text))
    assert one_line(text).isprintable()


def test_names_that_are_no_utf_8_become_text() -> None:
    name = os.fsdecode(b"\xff/")
    assert as_text(name) == "\\xff/"
    assert as_text("订单") == "订单"
