"""Manifests on a server, with audio beside them."""

import json
from dataclasses import replace

import pytest

from attune.corpora import fetch_manifest, open_corpus
from attune.errors import DataError, SourceError
from attune.sources import Cache, RetryPolicy
from attune.testing import make_corpus

from servers.web import Fault, Site, web

QUICK = RetryPolicy(timeout=2.0, tries=3, first_wait=0.01, longest_wait=0.02)


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "cache", retry=QUICK)


@pytest.fixture
def site(tmp_path):
    folder = make_corpus(tmp_path / "there", utterances=6).parent
    files = {f"/data/{path.relative_to(folder)}": path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return Site(files)


def files_in(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_a_far_away_manifest_lies_here_as_it_lies_there(site, cache, tmp_path):
    site.faults = [Fault(), Fault(503), Fault(end_after=1000)]
    with web(site) as url:
        path = fetch_manifest(f"{url}/data/manifest.jsonl", cache)
        asked = len(site.asked)
        assert fetch_manifest(f"{url}/data/manifest.jsonl", cache) == path
        assert len(site.asked) == asked == 9
    corpus = open_corpus("train", [path], tmp_path / "index")
    assert (len(corpus), corpus.problems) == (6, ())
    assert all(utterance.audio.is_file() for utterance in corpus)
    assert fetch_manifest(f"{url}/data/manifest.jsonl", replace(cache, is_offline=True)) == path


def test_tables_bring_their_audio_too(site, cache):
    site.files["/data/rows.tsv"] = b"id\taudio\ttext\na\t./audio/00000.wav\thello\n"
    with web(site) as url:
        path = fetch_manifest(f"{url}/data/rows.tsv", cache)
    assert (path.parent / "audio/00000.wav").is_file()


def test_text_alone_needs_nothing_beside_it(cache):
    with web(Site({"/a.jsonl": b'{"id": "a", "text": "hello"}\n'})) as url:
        assert fetch_manifest(f"{url}/a.jsonl", cache).name == "a.jsonl"


def test_audio_under_the_manifests_own_address_is_read_there(site, cache, tmp_path):
    with web(site) as url:
        address = f"{url}/data/audio/00000.wav"
        rows = [{"id": "a", "audio": address, "seconds": 1.0, "text": "a"}, {"audio": f"{url}/data/../b.wav"}]
        site.files["/data/here.jsonl"] = json.dumps(rows[0]).encode()
        path = fetch_manifest(f"{url}/data/here.jsonl", cache)
        assert [asked for asked, _ in site.asked] == ["/data/here.jsonl"]  # the audio was not fetched
        (utterance,) = open_corpus("train", [path], tmp_path / "index")
        assert utterance.audio == address
        site.files["/data/sly.jsonl"] = json.dumps(rows[1]).encode()
        with pytest.raises(DataError, match="outside its folder"):
            fetch_manifest(f"{url}/data/sly.jsonl", cache)


@pytest.mark.parametrize(
    "audio", ["../secret.wav", "/etc/passwd", "a/../../b.wav", "https://elsewhere/a.wav", "file:/etc/passwd"]
)
def test_a_manifest_that_points_outside_its_folder_is_refused_with_its_line(site, cache, audio):
    rows = [{"audio": "audio/00000.wav", "text": "a"}, {"audio": audio, "text": "b"}]
    site.files["/data/evil.jsonl"] = "\n".join(map(json.dumps, rows)).encode()
    with web(site) as url, pytest.raises(DataError, match=r"/data/evil.jsonl:2 names a file .*outside its folder"):
        fetch_manifest(f"{url}/data/evil.jsonl", cache)
    assert [path for path, _ in site.asked] == ["/data/evil.jsonl"]


def test_audio_that_is_not_there_is_named(site, cache):
    del site.files["/data/audio/00003.wav"]
    with web(site) as url, pytest.raises(SourceError, match=r"Cannot read .*/data/audio/00003.wav: .*404"):
        fetch_manifest(f"{url}/data/manifest.jsonl", cache)
    assert files_in(cache.folder / "parts") == []


def test_a_manifest_here_may_point_anywhere(tmp_path, cache):
    manifest = make_corpus(tmp_path / "here", utterances=1)
    assert fetch_manifest(str(manifest), cache) == manifest
