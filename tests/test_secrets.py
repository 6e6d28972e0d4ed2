"""What an address may say of itself, in messages and in files."""

import pickle

import pytest

from attune.errors import AttuneError, DataError
from attune.secrets import digested, has_secrets, shown, without_secrets


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("https://me:5ecret@host/a?v=1", "https://host/a?v=1"),
        ("https://host/a?X-Amz-Signature=5ecret&X-Amz-Expires=60&v=1", "https://host/a?v=1"),
        ("https://host/a?sig=5ecret&st=2026&v=1", "https://host/a?v=1"),
        ("https://host/a?access_token=5ecret&v=1", "https://host/a?v=1"),
        ("s3://bucket/a?v=1", "s3://bucket/a?v=1"),
        ("s3://KEY:5ecret@bucket/a", "s3://bucket/a"),
        ("s3://KEY:5ec/ret@bucket/a", "s3://bucket/a"),
        ("hf://user:5ecret@org/name@v1/file", "hf://org/name@v1/file"),
        ("toy.depot://me:5ecret@/tmp/a", "toy.depot:///tmp/a"),
        ("https://host:8080/a@b/c", "https://host:8080/a@b/c"),
        ("https://[::1]:80/a", "https://[::1]:80/a"),
    ],
)
def test_an_address_is_shown_without_what_opens_it(address, told):
    assert shown(address) == shown(told) == told
    assert without_secrets(f"It is '{address}' that fails.") == f"It is '{told}' that fails."


@pytest.mark.parametrize(
    "name", ["secret_key", "x-api-key", "jwt", "pwd", "private_key", "apikey", "client_secret", "AccessKeyId", "pass"]
)
def test_a_known_credential_is_left_out_so_that_the_file_stays_the_same(name):
    assert shown(f"https://host/a?{name}=5ecret") == shown(f"https://host/a?{name}=other") == "https://host/a"


@pytest.mark.parametrize(
    "query", ["key=5ecret", "k=5ecret", "opens=5ecret", "5ecret", "v=1;k=5ecret", "path=x://a:5ecret@b", "v=1#k=5ecret"]
)
def test_any_other_value_is_shown_as_a_digest_that_distinguishes_files(query):
    address = f"https://host/a?{query}&v=1"
    told = shown(address)
    assert "5ecret" not in told and "v=1" in told
    assert shown(told) == told != shown(address.replace("5ecret", "other"))
    assert has_secrets(address) and not digested(address)


@pytest.mark.parametrize(
    "address",
    [
        "https://host/a?download=true&revision=main&versionId=3HL4.x",
        "https://h/a?raw",
        "file:///a?k=1",
        "/a?k=1#b",
        "a b",
    ],
)
def test_what_is_harmless_is_shown(address):
    assert shown(address).rstrip("=") == address
    assert not has_secrets(address)


def test_each_address_of_a_text_is_shown_without_what_opens_it():
    text = "[https://h/a,s3://K:5ecret@b/c] (toy.depot://me:5ecret@h/a?x=5ecret), https://h/https://me:5ecret@i/b."
    told = without_secrets(text)
    assert "5ecret" not in told
    assert told.startswith("[https://h/a,s3://b/c] (toy.depot://h/a?x=~")
    assert told.endswith("), https://h/https://i/b.")
    assert without_secrets(told) == told


@pytest.mark.parametrize("kind", [AttuneError, DataError])
def test_no_message_repeats_what_opens_an_address(kind):
    error = kind("https://host/a.wav?X-Amz-Signature=5ecret&v=1 is silent.")
    assert str(error) == str(pickle.loads(pickle.dumps(error))) == "https://host/a.wav?v=1 is silent."
