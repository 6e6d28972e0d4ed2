"""What an address may say of itself, in messages and in files."""

import pickle

import pytest

from attune.errors import AttuneError, DataError
from attune.secrets import shown, without_secrets


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("https://me:5ecret@host/a?v=1", "https://host/a?v=1"),
        ("https://host/a?X-Amz-Signature=5ecret&X-Amz-Expires=60&v=1", "https://host/a?v=1"),
        ("https://host/a?sig=5ecret&st=2026&v=1", "https://host/a?v=1"),
        ("https://host/a?access_token=5ecret&v=1", "https://host/a?v=1"),
        ("https://host/a?st=2026&tokens=500", "https://host/a?st=2026&tokens=500"),
        ("s3://bucket/a?v=1", "s3://bucket/a?v=1"),
    ],
)
def test_an_address_is_shown_without_what_opens_it(address, told):
    assert shown(address) == told
    assert without_secrets(f"It is '{address}' that fails.") == f"It is '{told}' that fails."


def test_a_key_is_shown_as_a_digest():
    told = shown("https://host/a?key=AIza5ecret&v=1")
    assert "5ecret" not in told and told.endswith("&v=1")
    assert shown(told) == told


@pytest.mark.parametrize("kind", [AttuneError, DataError])
def test_no_message_repeats_what_opens_an_address(kind):
    error = kind("https://host/a.wav?X-Amz-Signature=5ecret&v=1 is silent.")
    assert str(error) == str(pickle.loads(pickle.dumps(error))) == "https://host/a.wav?v=1 is silent."
