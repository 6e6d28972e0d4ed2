"""Whatever is wrong with an address: a message, exit 2, and nothing left behind."""

import pytest

from attune.cli import main

from servers.hub import Hub, serve_hub
from servers.s3 import KEY, rclone
from servers.web import Site, web


@pytest.fixture
def places(tmp_path, monkeypatch):
    (tmp_path / "buckets/speech").mkdir(parents=True)
    page = b"<!doctype html><title>Sign in</title>"
    settings = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": "wrong-5ecret", "AWS_DEFAULT_REGION": "us-east-1"}
    settings |= {"AWS_REQUEST_CHECKSUM_CALCULATION": "when_required", "ATTUNE_CACHE": str(tmp_path / "cache")}
    hub = Hub()
    site = Site({"/model.safetensors": page})
    with serve_hub(hub) as hub_url, web(site) as url, rclone(tmp_path / "buckets") as s3_url:
        settings |= {"HF_ENDPOINT": hub_url, "AWS_ENDPOINT_URL": s3_url}
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        yield url


def test_each_is_an_error_and_leaves_nothing(places, tmp_path, capsys):
    expected = {
        "gopher://host/a": "Unknown scheme 'gopher'",
        "htps://host/a": "did you mean 'https'",
        "hf://org/none": "the Hub has no such repository",
        f"{places}/none": "answered 404",
        f"{places}/model.safetensors": "is a web page ('Sign in'), not a file",
        "s3://speech/a": "Check AWS_ACCESS_KEY_ID",
        "nowhere/at-all": "write hf://nowhere/at-all",
    }
    for address, message in expected.items():
        assert main(["pull", address, "--to", str(tmp_path / "out" / "model")]) == 2
        printed = capsys.readouterr().err
        assert message in printed
        assert "Traceback" not in printed and "5ecret" not in printed
    assert [path for name in ("cache", "out") for path in (tmp_path / name).rglob("*") if path.is_file()] == []
    assert not (tmp_path / "out").exists()


def test_offline_is_an_error(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ATTUNE_CACHE", str(tmp_path))
    monkeypatch.setenv("ATTUNE_OFFLINE", "1")
    assert main(["pull", "hf://org/none", "--to", str(tmp_path / "model")]) == 2
    assert "--offline (ATTUNE_OFFLINE) is set" in capsys.readouterr().err
