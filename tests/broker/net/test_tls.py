"""Certificate files that can be used, and what is said of those that cannot."""

from pathlib import Path

import pytest

from broker.config import TlsOptions
from broker.net.tls import load_context
from certificates import Authority
from protocol.errors import ConfigError


def test_key_and_certificate_may_share_a_file(authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.sign("one")
    both = tmp_path / "both.pem"
    both.write_bytes(certificate.read_bytes() + key.read_bytes())
    assert load_context(TlsOptions("enforcing", both)).cert_store_stats()


def test_the_password_of_a_key_is_read_from_a_file_and_never_asked_for(authority: Authority, tmp_path: Path) -> None:
    pair = authority.sign("locked", password="open sesame")
    password = tmp_path / "password"
    password.write_text("open sesame\n")
    load_context(TlsOptions("enforcing", *pair, key_password_file=password))
    password.write_text("wrong\n")
    for file in (password, None):
        with pytest.raises(ConfigError) as caught:
            load_context(TlsOptions("enforcing", *pair, key_password_file=file))
        assert str(pair[1]) in str(caught.value)
        assert "wrong" not in str(caught.value)


def test_a_file_that_cannot_be_used_is_named(authority: Authority, tmp_path: Path) -> None:
    pair, other = authority.sign("one"), authority.sign("other")
    nothing = tmp_path / "nothing.pem"
    broken = tmp_path / "broken.pem"
    broken.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n")
    cases = [
        (TlsOptions("enforcing", nothing), "nothing.pem cannot be used: No such file"),
        (TlsOptions("enforcing", broken), "broken.pem cannot be used"),
        (TlsOptions("enforcing", pair[0], other[1]), "key values mismatch"),
        (TlsOptions("enforcing", *pair, client_ca=nothing, client_auth="required"), "nothing.pem cannot be used"),
        (TlsOptions("enforcing", *pair, client_ca=broken, client_auth="required"), "broken.pem cannot be used"),
        (TlsOptions("enforcing", *pair, key_password_file=nothing), "nothing.pem cannot be read"),
    ]
    for options, says in cases:
        with pytest.raises(ConfigError, match=says):
            load_context(options)
