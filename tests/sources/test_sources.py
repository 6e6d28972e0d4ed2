from contextlib import nullcontext

import pytest

from attune.errors import SourceError
from attune.sources import Body, Cache, Listing, RemoteFile, fetch, locate, push


def test_a_plain_path_is_itself(tmp_path):
    manifest = tmp_path / "train:1.jsonl"
    manifest.touch()
    assert locate(str(manifest), Cache(tmp_path / "cache")) == manifest


def test_a_relative_path_starts_from_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dev.jsonl").touch()
    assert locate("dev.jsonl", Cache(tmp_path)).resolve() == tmp_path / "dev.jsonl"


def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a.wav").touch()
    assert locate("~/a.wav", Cache(tmp_path)) == tmp_path / "a.wav"


def test_a_file_address_is_unquoted(tmp_path):
    audio = tmp_path / "two words.wav"
    audio.touch()
    for address in (audio.as_uri(), f"file:{tmp_path}/two%20words.wav", f"FILE://localhost{tmp_path}/two%20words.wav"):
        assert locate(address, Cache(tmp_path)) == audio


def test_a_missing_file_is_named_with_the_folder_it_was_looked_for_from(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SourceError, match=rf"No file or folder lost\.wav \(from {tmp_path}\)"):
        locate("lost.wav", Cache(tmp_path))


def test_a_file_on_another_machine_is_refused(tmp_path):
    with pytest.raises(SourceError, match=r"on another machine \(server\)"):
        locate("file://server/a.wav", Cache(tmp_path))


def test_an_unknown_scheme_is_answered_with_the_nearest(tmp_path):
    with pytest.raises(SourceError, match=r"Unknown scheme 'htps' in htps://host/a.*did you mean 'https'"):
        locate("htps://host/a", Cache(tmp_path))
    with pytest.raises(SourceError, match=r"known: attune, file, hf, http, https, s3"):
        locate("gopher://host/a", Cache(tmp_path))


def test_what_ships_in_the_package_is_a_real_file(tmp_path):
    manifest = locate("attune://demo/train.jsonl", Cache(tmp_path))
    assert manifest.is_file()
    assert (manifest.parent / "audio").is_dir()


def test_what_does_not_ship_is_answered_with_the_nearest(tmp_path):
    with pytest.raises(SourceError, match=r"does not ship 'demo/trian.jsonl'; did you mean 'train.jsonl'"):
        locate("attune://demo/trian.jsonl", Cache(tmp_path))
    with pytest.raises(SourceError, match=r"does not ship 'nowhere/at/all'\."):
        locate("attune://nowhere/at/all", Cache(tmp_path))


def test_nothing_outside_the_package_ships_with_it(tmp_path):
    with pytest.raises(SourceError, match="not inside the package"):
        locate("attune://../../pyproject.toml", Cache(tmp_path))


@pytest.mark.parametrize(
    "address", ["s3://KEY:5ecret@bucket/a", "s3://bucket/a?secret_key=5ecret", "s3://K:5e/cret@b/a"]
)
def test_credentials_in_an_s3_address_are_refused_without_repeating_them(tmp_path, address):
    with pytest.raises(SourceError, match="contains a user, password or query.*AWS_ACCESS_KEY_ID") as refused:
        locate(address, Cache(tmp_path))
    assert "cret@" not in str(refused.value) and "5ecret" not in str(refused.value)


@pytest.mark.parametrize("address", ["hf://user:5ecret@org/name", "hf://org/name?token=5ecret"])
def test_credentials_in_a_hub_address_are_refused_without_repeating_them(tmp_path, address):
    with pytest.raises(SourceError, match="contains a user, password or query.*HF_TOKEN") as refused:
        locate(address, Cache(tmp_path))
    assert "5ecret" not in str(refused.value)


def test_a_source_of_another_package_is_recorded_without_credentials_and_once(tmp_path):
    cache = Cache(tmp_path / "cache")
    remote = RemoteFile(lambda start, version: nullcontext(Body(iter([b"1"]), 0, 1, None)))
    for password in ("5ecret", "0ther"):
        fetch(f"toy.depot://me:{password}@depot/a?jwt={password}", lambda known, locked: Listing({"a": remote}), cache)
    assert list(cache.used) == ["toy.depot://depot/a"]
    assert len(list((cache.folder / "index").iterdir())) == 1
    written = [path for path in cache.folder.rglob("*") if path.is_file()]
    assert not [path for path in written if b"5ecret" in path.read_bytes() or b"0ther" in path.read_bytes()]


@pytest.mark.parametrize("parameters", ["folder, address, message", "folder, address, message, watch"])
def test_a_plug_in_uploads_whether_its_push_takes_the_progress_or_not(tmp_path, monkeypatch, parameters):
    """In 0.1, `push` had no `watch`."""
    name = f"store{parameters.count(',')}"
    (tmp_path / "depots").mkdir()
    (tmp_path / "depots" / f"{name}.py").write_text(
        "from attune.sources import Source\n"
        f"def push({parameters}):\n    return f'{{message}} at {{address}}'\n"
        "SOURCE = Source(None, push)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert push(tmp_path, f"depots.{name}://here", "a model") == f"a model at depots.{name}://here"
