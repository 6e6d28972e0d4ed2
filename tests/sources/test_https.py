"""Every test talks to a real server on this machine."""

import hashlib
import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from attune.errors import SourceError
from attune.sources import Cache, RetryPolicy, locate, read_lock
from attune.sources import _fetch as fetching

from servers.web import Fault, Site, tag_of, web

QUICK = RetryPolicy(timeout=0.4, tries=3, first_wait=0.01, longest_wait=0.02)
WEIGHTS = bytes(range(256)) * 20_000  # 5 MB: several chunks


@pytest.fixture
def cache(tmp_path) -> Cache:
    return Cache(tmp_path / "cache", retry=QUICK)


def files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def forget_time(monkeypatch):
    """As if the last answer were long ago."""
    monkeypatch.setattr(fetching, "FRESH_SECONDS", 0.0)


def test_a_file_is_fetched_once(cache):
    site = Site({"/model.bin": WEIGHTS})
    with web(site) as url:
        first = locate(f"{url}/model.bin", cache)
        second = locate(f"{url}/model.bin", cache)
    assert first == second
    assert first.name == "model.bin"
    assert first.read_bytes() == WEIGHTS
    assert site.asked == [("/model.bin", None)]


def test_the_same_name_from_two_addresses_is_two_files(cache):
    with web(Site({"/small/model.bin": b"small", "/large/model.bin": b"large"})) as url:
        small, large = locate(f"{url}/small/model.bin", cache), locate(f"{url}/large/model.bin", cache)
    assert (small.read_bytes(), large.read_bytes()) == (b"small", b"large")


def test_a_changed_file_is_fetched_again_and_an_unchanged_one_is_not(cache, monkeypatch):
    site = Site({"/a": b"old"})
    forget_time(monkeypatch)
    with web(site) as url:
        old = locate(f"{url}/a", cache)
        assert locate(f"{url}/a", cache) == old
        assert site.sent == 3
        site.files["/a"] = b"new!"
        assert locate(f"{url}/a", cache).read_bytes() == b"new!"
    assert old.read_bytes() == b"old"


def test_offline_what_is_there_is_used_and_nothing_else(cache, monkeypatch):
    forget_time(monkeypatch)
    site = Site({"/a": b"here"})
    with web(site) as url:
        locate(f"{url}/a", cache)
        offline = replace(cache, is_offline=True)
        assert locate(f"{url}/a", offline).read_bytes() == b"here"
        with pytest.raises(SourceError, match="/b is not in the cache .* --offline .*attune fetch"):
            locate(f"{url}/b", offline)
    assert len(site.asked) == 1


def test_a_busy_server_is_asked_again_when_it_likes(cache):
    site = Site({"/a": b"ok"}, [Fault(503), Fault(429, {"Retry-After": "0"})])
    with web(site) as url:
        assert locate(f"{url}/a", cache).read_bytes() == b"ok"
    assert len(site.asked) == 3


def test_a_body_that_is_cut_short_is_gone_on_with(cache):
    site = Site({"/a": WEIGHTS}, [Fault(end_after=2_000_000), Fault(end_after=1_000_000)])
    with web(site) as url:
        assert locate(f"{url}/a", cache).read_bytes() == WEIGHTS
    assert [wanted for _, wanted in site.asked] == [None, "bytes=2000000-", "bytes=3000000-"]
    assert site.sent == len(WEIGHTS)


def test_a_server_that_stalls_is_left_and_asked_for_the_rest(cache):
    site = Site({"/a": WEIGHTS}, [Fault(stall_after=1 << 20)])
    with web(site) as url:
        assert locate(f"{url}/a", cache).read_bytes() == WEIGHTS
    assert site.asked[1][1] == f"bytes={1 << 20}-"


def test_what_a_dead_process_left_is_gone_on_with(cache):
    site = Site({"/a": WEIGHTS}, [Fault(end_after=3_000_000), *[Fault(503)] * 3])
    with web(site) as url:
        with pytest.raises(
            SourceError, match=r"answered 503 Service Unavailable \(3 attempts in a row\).*to resume it"
        ):
            locate(f"{url}/a", cache)
        assert all(path.parent.name == "parts" for path in files_in(cache.folder))
        assert locate(f"{url}/a", cache).read_bytes() == WEIGHTS
    assert site.sent == len(WEIGHTS)
    assert not files_in(cache.folder / "parts")


def test_a_file_that_changes_between_two_tries_is_begun_anew(cache):
    site = Site({"/a": WEIGHTS}, [Fault(end_after=3_000_000), *[Fault(503)] * 3])
    with web(site) as url:
        with pytest.raises(SourceError):
            locate(f"{url}/a", cache)
        site.files["/a"] = WEIGHTS[::-1]
        assert locate(f"{url}/a", cache).read_bytes() == WEIGHTS[::-1]


def test_a_server_without_ranges_or_tags_is_asked_for_all_of_it(cache):
    for site in (Site({"/a": WEIGHTS}, has_ranges=False), Site({"/a": WEIGHTS}, has_tags=False)):
        site.faults.append(Fault(end_after=3_000_000))
        with web(site) as url:
            assert locate(f"{url}/a", cache).read_bytes() == WEIGHTS


def test_a_file_that_has_become_shorter_than_its_part_is_begun_anew(cache):
    site = Site({"/a": WEIGHTS}, [Fault(end_after=3_000_000), *[Fault(503)] * 3])
    with web(site) as url:
        with pytest.raises(SourceError):
            locate(f"{url}/a", cache)
        site.files["/a"] = b"short"
        site.faults = [Fault(416)]
        assert locate(f"{url}/a", cache).read_bytes() == b"short"


def test_a_hash_in_the_address_is_held_to_and_damage_of_the_same_size_is_named(cache):
    good = hashlib.sha256(WEIGHTS).hexdigest()
    site = Site({"/a": WEIGHTS}, [Fault(corrupt=True)])
    with web(site) as url:
        assert locate(f"{url}/a#sha256={good}", cache).read_bytes() == WEIGHTS
        assert len(site.asked) == 2
        site.faults = [Fault(corrupt=True)] * 3
        site.files["/b"] = WEIGHTS + b"!"
        wrong = hashlib.sha256(WEIGHTS + b"!").hexdigest()
        before = files_in(cache.folder)
        with pytest.raises(
            SourceError, match=rf"/b#sha256={wrong} arrived corrupted 3 times: expected sha256 {wrong}, got"
        ):
            locate(f"{url}/b#sha256={wrong}", cache)
    assert files_in(cache.folder) == before


def test_a_known_hash_needs_no_network(cache, monkeypatch):
    forget_time(monkeypatch)
    site = Site({"/a": b"1"})
    with web(site) as url:
        for _ in range(2):
            locate(f"{url}/a#sha256={hashlib.sha256(b'1').hexdigest()}", cache)
    assert len(site.asked) == 1


def test_a_malformed_hash_is_refused(cache):
    with pytest.raises(SourceError, match="expected #sha256=… with 64 hexadecimal digits"):
        locate("https://127.0.0.1:9/a#md5=1", cache)


def test_what_is_not_there_is_not_asked_for_twice_and_leaves_nothing(cache):
    site = Site()
    with web(site) as url, pytest.raises(SourceError, match="answered 404 Not Found. Check the URL"):
        locate(f"{url}/a", cache)
    assert len(site.asked) == 1
    assert files_in(cache.folder) == []


def test_a_page_instead_of_a_model_is_named_and_leaves_nothing(cache):
    page = b"\n<!DOCTYPE html><html><head><title>Please sign in</title>"
    with web(Site({"/model.safetensors": page})) as url:
        with pytest.raises(SourceError, match=r"is a web page \('Please sign in'\), not a file"):
            locate(f"{url}/model.safetensors", cache)
        assert files_in(cache.folder) == []


def test_a_page_that_was_asked_for_is_a_file(cache):
    with web(Site({"/index.html": b"<html>"})) as url:
        assert locate(f"{url}/index.html", cache).read_bytes() == b"<html>"


def test_a_server_that_does_not_listen_is_reported(cache):
    with web(Site()) as url:
        pass
    with pytest.raises(SourceError, match=r"refused \(3 attempts"):
        locate(f"{url}/a", cache)


@pytest.mark.parametrize("address", ["https://", "https://[", "http://host:port/a", "https:///a"])
def test_what_is_no_address_is_refused_at_once(address, cache):
    with pytest.raises(SourceError, match="is not a web address"):
        locate(address, cache)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/", "file"),
        ("/..", "file"),
        ("/a%2Fb/c%20d.wav?x=1", "c_d.wav"),
        ("/.hidden", "hidden"),
        (f"/{'x' * 300}", "x" * 100),
    ],
)
def test_the_name_in_the_cache_is_safe(path, name, cache):
    with web(Site({path.partition("?")[0]: b"1"})) as url:
        assert locate(url + path, cache).name == name


def test_letters_and_spaces_in_an_address_are_sent_as_browsers_send_them(cache):
    with web(Site({"/%C3%BCber%20uns.wav": b"1"})) as url:
        assert locate(f"{url}/über uns.wav", cache).name == "über_uns.wav"


def test_a_cache_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "cache").write_text("in the way")
    with pytest.raises(SourceError, match="Cannot write .*ATTUNE_CACHE"):
        locate("http://127.0.0.1:9/a", Cache(tmp_path / "cache", retry=QUICK))


def test_a_file_larger_than_the_disk_is_refused_before_it_comes(cache, monkeypatch):
    from attune.sources._fetch import Listing, RemoteFile, fetch

    remote = RemoteFile(lambda start, version: pytest.fail("opened"), size=1 << 60)
    with pytest.raises(SourceError, match=r"needs 1152921504.6 GB; .* GB free"):
        fetch("test://large", lambda known, locked: Listing({"large": remote}), cache)


def test_secrets_in_an_address_are_never_written_or_printed(cache):
    site = Site({"/a": b"1"})
    with web(site) as url:
        locate(f"{url}/a?version=2&X-Amz-Signature=5ecret&token=5ecret", cache)
        with pytest.raises(SourceError) as missing:
            locate(f"{url}/b?X-Amz-Signature=5ecret", cache)
    assert "5ecret" not in str(missing.value)
    assert list(cache.used) == [f"{url}/a?version=2"]
    assert not [path for path in files_in(cache.folder) if b"5ecret" in path.read_bytes() + str(path).encode()]


@pytest.mark.parametrize("name", ["X-Amz-Signature", "secret_key", "x-api-key", "jwt", "pwd", "private_key"])
def test_an_address_signed_anew_is_the_same_file(cache, name):
    site = Site({"/a": b"1"})
    with web(site) as url:
        for signature in ("5ecret", "0ther"):
            locate(f"{url}/a?{name}={signature}", cache)
    assert not [path for path in files_in(cache.folder) if b"5ecret" in path.read_bytes()]
    assert len(site.asked) == 1


@pytest.mark.parametrize("name", ["key", "tokens", "policy", "st", "expires"])
def test_addresses_that_differ_in_what_is_asked_for_are_two_files(cache, name):
    site = Site({f"/get?{name}=large": b"1", f"/get?{name}=small": b"2"})
    with web(site) as url:
        found = [locate(f"{url}/get?{name}={value}", cache).read_bytes() for value in ("large", "small")]
    assert found == [b"1", b"2"]
    assert len(cache.used) == 2
    assert not [path for path in files_in(cache.folder) if b"large" in path.read_bytes()]


def test_an_address_of_a_runs_file_is_used_from_the_cache_and_never_requested(cache):
    site = Site({"/get?id=5ecret": b"1"})
    with web(site) as url:
        locate(f"{url}/get?id=5ecret", cache)
        (kept,) = cache.used
        assert locate(kept, cache).read_bytes() == b"1"
        with pytest.raises(
            SourceError, match="the value of id may be secret and is not written.*Use the original recipe"
        ):
            locate(kept.replace("/get", "/other"), cache)
    assert len(site.asked) == 1


def test_a_password_in_an_address_is_refused_without_repeating_it(cache):
    with pytest.raises(SourceError, match=r"~/.netrc: machine host login USER") as refused:
        locate("https://me:5ecret@host/a", cache)
    assert "5ecret" not in str(refused.value)


def test_netrc_opens_its_host_and_no_other(cache, tmp_path, monkeypatch):
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password 5ecret\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    other = Site({"/b": b"far"})
    with web(other) as there:
        other_host = there.replace("127.0.0.1", "localhost")
        site = Site({"/a": b""}, [Fault(302, {"Location": f"{other_host}/b"})])
        with web(site) as url:
            assert locate(f"{url}/a", cache).read_bytes() == b"far"
    assert "Authorization" in site.seen_headers[0]
    assert "Authorization" not in other.seen_headers[0]


def test_progress_is_reported(tmp_path):
    seen = []
    cache = Cache(tmp_path, watch=seen.append)
    with web(Site({"/a": WEIGHTS})) as url:
        locate(f"{url}/a", cache)
    assert (seen[-1].done, seen[-1].total) == (len(WEIGHTS), len(WEIGHTS))
    assert len(seen) > 3


def test_a_lock_gives_exactly_what_was_used(cache, tmp_path, monkeypatch):
    forget_time(monkeypatch)
    site = Site({"/a": b"then"})
    with web(site) as url:
        locate(f"{url}/a", cache)
        site.files["/a"] = b"now!"
        assert locate(f"{url}/a", cache.locked_to(dict(cache.used))).read_bytes() == b"then"
        elsewhere = replace(cache, folder=tmp_path / "elsewhere").locked_to(dict(cache.used))
        with pytest.raises(SourceError, match=rf"/a has changed since it was locked \({tag_of(b'then')}\)"):
            locate(f"{url}/a", elsewhere)
        site.files["/a"] = b"then"
        assert locate(f"{url}/a", elsewhere).read_bytes() == b"then"


@pytest.mark.parametrize("is_name", [False, True])
def test_a_lock_that_leads_out_of_the_cache_is_refused(cache, tmp_path, is_name):
    own, sound = tmp_path / "diary.txt", "0" * 64
    own.write_text("mine")
    cache.object(sound).parent.mkdir(parents=True)
    cache.object(sound).write_text("else")
    name, found = (f"../../../../{own.name}", sound) if is_name else ("a", f"..{own}")
    entry = {"source": "https://h/a", "revision": "1", "files": {name: {"sha256": found, "size": 4}}, "is_folder": True}
    (tmp_path / "lock.json").write_text(json.dumps({"format": 1, "sources": [entry]}))
    with pytest.raises(SourceError, match=r"lock.json is not a lock file \(.*(is no SHA-256|is outside its folder)\)"):
        locate("https://h/a", replace(cache, is_offline=True).locked_to(read_lock(tmp_path / "lock.json")))
    assert own.read_text() == "mine"


def test_a_server_that_is_gone_is_an_error_though_an_older_copy_is_here(cache, monkeypatch):
    forget_time(monkeypatch)
    with web(Site({"/a": b"1"})) as url:
        locate(f"{url}/a", cache)
    with pytest.raises(
        SourceError, match=r"refused \(3 attempts.*An earlier version is in the cache; ATTUNE_OFFLINE=1"
    ):
        locate(f"{url}/a", cache)
    assert locate(f"{url}/a", replace(cache, is_offline=True)).read_bytes() == b"1"


@pytest.mark.timeout(60)
def test_a_killed_holder_of_the_lock_is_followed_at_once(cache):
    site = Site({"/a": WEIGHTS}, [Fault(stall_after=1 << 20)])
    patient = replace(cache, retry=RetryPolicy(timeout=3600))  # whoever waited for that would never be done
    with web(site) as url:
        child = os.fork()
        if not child:
            locate(f"{url}/a", patient)
            os._exit(0)
        while not files_in(cache.folder / "parts"):
            time.sleep(0.01)
        time.sleep(0.2)
        os.kill(child, 9)
        os.waitpid(child, 0)
        assert locate(f"{url}/a", patient).read_bytes() == WEIGHTS
    assert [wanted for _, wanted in site.asked] == [None, f"bytes={1 << 20}-"]
    assert files_in(cache.folder / "locks") == []


def test_a_server_without_ranges_that_cuts_every_response_is_left(cache):
    cuts = [Fault(end_after=1_000_000), Fault(end_after=2_000_000)] * 50
    site = Site({"/a": WEIGHTS}, cuts, has_ranges=False)
    with web(site) as url, pytest.raises(SourceError, match=r"received 2000000 of 5120000 bytes \(3 attempts in a row"):
        locate(f"{url}/a", cache)
    assert len(site.asked) == 4


def test_a_stall_is_reported_while_it_lasts(tmp_path, monkeypatch):
    monkeypatch.setattr("attune.sources._stalls.STALL_SECONDS", 0.05)
    seen = []
    cache = Cache(tmp_path, retry=QUICK, watch=seen.append)
    with web(Site({"/a": WEIGHTS}, [Fault(stall_after=1 << 20), Fault(503, {"Retry-After": "99999999"})])) as url:
        assert locate(f"{url}/a", cache).read_bytes() == WEIGHTS
    stalled = [each for each in seen if each.stalled]
    assert stalled[0].done == 1 << 20 and stalled[0].stalled.startswith("no data from the server (")
    assert any("asked to wait 99,999,999 s, which is too long; attempt" in each.stalled for each in stalled)
