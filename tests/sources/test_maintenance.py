"""What is in the cache, whether it is sound, and what has not been used for long."""

import json
import os
import time
from contextlib import nullcontext

import pytest

from attune.cli import main
from attune.sources import Body, Cache, Listing, RemoteFile, contents, damaged, fetch, locate, prune

from servers.web import Site, web


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTUNE_CACHE", str(tmp_path / "cache"))
    return Cache(tmp_path / "cache")


@pytest.fixture
def fetched(cache):
    with web(Site({"/a": b"one", "/b": b"two", "/same": b"two"})) as url:
        yield {name: locate(f"{url}/{name}", cache) for name in ("a", "b", "same")}


def age(cache, source_end, days):
    """As if the source had been fetched, and last been used, so many days ago."""
    (kept,) = [each for each in contents(cache) if each.entry.source.endswith(source_end)]
    age_entry(cache, kept.entry, days)


def age_entry(cache, entry, days):
    then = time.time() - days * 86_400
    objects = [cache.object(file.sha256) for file in entry.files.values()]
    for path in (cache.index(entry.source), cache.place_of(entry).parent, *objects):
        os.utime(path, (then, then))


def remote_of(content):
    return RemoteFile(lambda start, version: nullcontext(Body(iter([content]), 0, len(content), None)))


@pytest.fixture
def two_versions(cache, monkeypatch):
    """A source, and what it was when a run was locked to it; it has changed since."""
    monkeypatch.setattr("attune.sources._fetch.FRESH_SECONDS", 0)
    site = Site({"/a": b"one"})
    with web(site) as url:
        locate(f"{url}/a", cache)
        locked = cache.locked_to(dict(cache.used))
        site.files["/a"] = b"two"
        locate(f"{url}/a", cache)
        site.files["/a"] = b"one"
        yield f"{url}/a", locked


def test_equal_files_are_kept_once(cache, fetched):
    assert len(list((cache.folder / "objects").glob("*/*"))) == 2
    assert fetched["b"].samefile(cache.object(next(iter(contents(cache)[0].entry.files.values())).sha256))
    assert fetched["same"].stat().st_ino == fetched["b"].stat().st_ino


def test_what_was_fetched_is_listed(cache, fetched, capsys):
    assert main(["cache", "ls"]) == 0
    assert "3 sources" in capsys.readouterr().out
    assert main(["cache", "ls", "--json"]) == 0
    assert {each["source"][-1] for each in json.loads(capsys.readouterr().out)} == {"a", "b", "e"}


def test_damage_is_found_and_removed_and_fetched_again(cache, fetched, capsys):
    assert main(["cache", "verify"]) == 0
    fetched["a"].write_bytes(b"0ne")
    assert main(["cache", "verify"]) == 1
    assert "/a" in capsys.readouterr().out
    assert main(["cache", "verify", "--remove", "--json"]) == 1
    assert len(json.loads(capsys.readouterr().out)["damaged"]) == 1
    assert not fetched["a"].exists()
    assert list(damaged(cache, remove=False)) == []


def test_damage_of_a_version_that_only_a_lock_remembers_is_removed_too(cache, two_versions):
    source, locked = two_versions
    locate(source, locked).write_bytes(b"0ne")
    assert [sources for _, sources in damaged(cache, remove=True)] == [[]]
    assert locate(source, locked).read_bytes() == b"one"


def test_damage_is_removed_from_every_folder_that_has_the_file(cache):
    for name in ("x", "y"):
        listing = Listing({"same": remote_of(b"same"), "own": remote_of(name.encode())}, is_folder=True)
        folder = fetch(f"test://{name}", lambda *_, listing=listing: listing, cache)
    cache.index("test://x").unlink()
    (folder / "same").write_bytes(b"5ame")
    assert [sources for _, sources in damaged(cache, remove=True)] == [["test://y"]]
    assert not list(cache.folder.glob("trees/*/*"))


def test_what_a_locked_run_uses_stays_though_its_source_has_changed(cache, two_versions):
    source, locked = two_versions
    age_entry(cache, locked.locked[source], 40)
    path = locate(source, locked)
    prune(cache, 30)
    assert path.read_bytes() == b"one"
    age_entry(cache, locked.locked[source], 40)
    assert prune(cache, 30).files == 1
    assert not path.exists()


def test_only_what_was_not_used_for_long_is_removed(cache, fetched):
    age(cache, "/a", 40)
    age(cache, "/b", 40)
    (cache.folder / "parts").mkdir(exist_ok=True)
    (cache.folder / "parts/old.part").write_bytes(b"12345")
    os.utime(cache.folder / "parts/old.part", (0, 0))
    pruned = prune(cache, 30)
    assert sorted(source[-2:] for source in pruned.sources) == ["/a", "/b"]
    assert pruned.files == 2  # the part and what only /a was
    assert not fetched["a"].exists()
    assert not (cache.folder / "parts/old.part").exists()
    assert fetched["same"].read_bytes() == b"two"
    assert [each.entry.source[-5:] for each in contents(cache)] == ["/same"]


def test_less_than_no_days_are_refused(cache, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["cache", "prune", "--days", "-1"])
    assert "-1 is less than 0" in capsys.readouterr().err


def test_everything_can_be_removed(cache, fetched, capsys):
    assert main(["cache", "prune", "--days", "0"]) == 0
    assert "3 sources and 2 files removed" in capsys.readouterr().out
    assert [path for path in cache.folder.rglob("*") if path.is_file()] == []


def test_use_counts_from_the_last_time(cache, fetched):
    age(cache, "/a", 40)
    with web(Site()):
        pass
    offline = Cache(cache.folder, is_offline=True)
    (source,) = [each.entry.source for each in contents(cache) if each.entry.source.endswith("/a")]
    locate(source, offline)
    assert prune(cache, 30).sources == ()


def test_what_an_earlier_version_recorded_with_a_credential_is_shown_without_it_and_pruned(cache, fetched, capsys):
    (kept,) = [each for each in contents(cache) if each.entry.source.endswith("/a")]
    old = kept.index.with_name("old.json")
    old.write_text(kept.index.read_text().replace('/a"', '/a?jwt=5ecret"'))
    assert "5ecret" in old.read_text()
    assert main(["cache", "ls", "--json"]) == 0
    assert "5ecret" not in capsys.readouterr().out
    prune(cache, 30)
    assert not old.exists() and kept.index.exists()
