"""The real client of the Hub, and ours, against a small hub on this machine."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from attune.errors import SourceError
from attune.sources import Cache, RetryPolicy, locate, push
from attune.sources import _fetch as fetching

from servers.hub import Hub, serve_hub
from servers.web import Fault, Quiet, serving

QUICK = RetryPolicy(timeout=2.0, tries=3, first_wait=0.01, longest_wait=0.02)
WEIGHTS = bytes(range(256)) * 5000
MODEL = {
    "config.json": b'{"model_type": "whisper"}',
    "model.safetensors": WEIGHTS,
    "pytorch_model.bin": WEIGHTS + b"p",
    "model.fp32-00001-of-00002.safetensors": WEIGHTS + b"f",
    "tf_model.h5": WEIGHTS + b"t",
    "onnx/model.onnx": WEIGHTS + b"o",
    "README.md": b"# A model\n",
}


@pytest.fixture
def hub(monkeypatch):
    hub = Hub()
    hub.put("org/tiny", MODEL)
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    with serve_hub(hub) as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
        yield hub


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "cache", retry=QUICK)


def names_in(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def files_in(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_a_model_is_a_folder_without_the_same_weights_for_other_programs(hub, cache):
    folder = locate("hf://org/tiny", cache)
    assert folder.name == "tiny"
    assert names_in(folder) == ["README.md", "config.json", "model.safetensors"]
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS


def test_pickled_weights_are_fetched_when_there_are_no_others(hub, cache):
    hub.put("org/old", {"config.json": b"{}", "pytorch_model.bin": WEIGHTS, "tf_model.h5": WEIGHTS + b"t"})
    assert names_in(locate("hf://org/old", cache)) == ["config.json", "pytorch_model.bin"]


def test_one_file_of_a_revision(hub, cache):
    first = hub.repos["models/org/tiny"].branches["main"]
    hub.put("org/tiny", {**MODEL, "config.json": b"{}"})
    assert locate("hf://org/tiny/config.json", cache).read_bytes() == b"{}"
    assert locate(f"hf://org/tiny@{first}/config.json", cache).read_bytes() == MODEL["config.json"]
    assert locate("hf://org/tiny/config.json", cache).name == "config.json"


def test_a_data_set_is_all_of_its_files(hub, cache):
    hub.put("org/speech", {"data/a.bin": b"1", "train.jsonl": b"{}"}, kind="datasets")
    assert names_in(locate("hf://datasets/org/speech", cache)) == ["data/a.bin", "train.jsonl"]
    assert names_in(locate("hf://datasets/org/speech/data", cache)) == ["a.bin"]
    assert locate("hf://datasets/org/speech/train.jsonl", cache).read_bytes() == b"{}"


def test_a_commit_is_never_asked_about_again(hub, cache, monkeypatch):
    monkeypatch.setattr(fetching, "FRESH_SECONDS", 0.0)
    commit = hub.repos["models/org/tiny"].branches["main"]
    locate(f"hf://org/tiny@{commit}", cache)
    hub.asked.clear()
    locate(f"hf://org/tiny@{commit}", cache)
    assert hub.asked == []


def test_an_unchanged_branch_costs_one_question_and_a_changed_file_one_download(hub, cache, monkeypatch):
    monkeypatch.setattr(fetching, "FRESH_SECONDS", 0.0)
    locate("hf://org/tiny", cache)
    hub.asked.clear()
    locate("hf://org/tiny", cache)
    assert len(hub.asked) == 1
    hub.put("org/tiny", {**MODEL, "config.json": b"{}"})
    hub.asked.clear()
    assert (locate("hf://org/tiny", cache) / "config.json").read_bytes() == b"{}"
    assert [path.rpartition("/")[2] for path in hub.downloads()] == ["config.json"]


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_damage_of_the_same_size_is_found_and_mended_or_named(hub, cache, name):
    hub.faults = [Fault(corrupt=True)]
    assert locate(f"hf://org/tiny/{name}", cache).read_bytes() == MODEL[name]
    assert len([path for path in hub.downloads() if "GET" in path]) >= 2
    hub.put("org/other", {name: MODEL[name] + b"!"})
    hub.faults = [Fault(corrupt=True)] * 3
    before = files_in(cache.folder)
    kind = "sha256" if name == "model.safetensors" else "git"
    with pytest.raises(
        SourceError, match=rf"hf://org/other/{name} arrived corrupted 3 times: expected {kind} [0-9a-f]+, got"
    ):
        locate(f"hf://org/other/{name}", cache)
    assert files_in(cache.folder) == before


def test_a_truncated_and_refusing_hub_is_asked_again(hub, cache):
    hub.refusals = [503, 429]
    hub.faults = [Fault(503), Fault(end_after=500_000)]
    assert locate("hf://org/tiny/model.safetensors", cache).read_bytes() == WEIGHTS
    assert hub.site.sent == len(WEIGHTS)


def test_offline_the_cache_is_enough(hub, cache, monkeypatch):
    monkeypatch.setattr(fetching, "FRESH_SECONDS", 0.0)
    folder = locate("hf://org/tiny", cache)
    hub.asked.clear()
    offline = replace(cache, is_offline=True)
    assert locate("hf://org/tiny", offline) == folder
    with pytest.raises(SourceError, match="hf://org/none is not in the cache"):
        locate("hf://org/none", offline)
    assert hub.asked == []


def test_a_lock_brings_back_the_revision_that_was_used(hub, cache, tmp_path):
    locate("hf://org/tiny", cache)
    hub.put("org/tiny", {**MODEL, "config.json": b"{}"})
    elsewhere = replace(cache, folder=tmp_path / "new").locked_to(dict(cache.used))
    assert (locate("hf://org/tiny", elsewhere) / "config.json").read_bytes() == MODEL["config.json"]


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("hf://org/none", "the Hub has no such repository, or you have no access. Check the name.*HF_TOKEN"),
        ("hf://org/tiny@nope", "the Hub has no such revision"),
        ("hf://org/tiny/none.json", "no none.json in this repository. It has README.md, config.json"),
        ("hf://tiny", "is not a Hub address. Expected hf://ORG/NAME"),
        ("hf://org/tiny/../x", "is not a Hub address"),
    ],
)
def test_what_is_not_there_is_an_error_and_leaves_nothing(hub, cache, address, message):
    with pytest.raises(SourceError, match=message):
        locate(address, cache)
    assert files_in(cache.folder) == []


def test_a_token_opens_what_is_private_and_is_never_written(hub, cache, monkeypatch):
    hub.token = "hf_5ecret"
    with pytest.raises(SourceError, match="no such repository, or you have no access"):
        locate("hf://org/tiny", cache)
    monkeypatch.setenv("HF_TOKEN", "hf_5ecret")
    locate("hf://org/tiny", cache)
    assert not [path for path in files_in(cache.folder) if b"5ecret" in path.read_bytes()]


def test_a_folder_that_is_also_a_model_on_the_hub_is_refused_with_both_readings(hub, cache, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("org/tiny", "org/mine"):
        (tmp_path / name).mkdir(parents=True)
    with pytest.raises(SourceError, match=rf"ambiguous(.|\n)*\./org/tiny +the folder {tmp_path}(.|\n)*hf://org/tiny"):
        locate("org/tiny", cache)
    assert locate("./org/tiny", cache).samefile(tmp_path / "org/tiny")
    assert locate("org/mine", cache).samefile(tmp_path / "org/mine")
    assert locate("hf://org/tiny", cache) != tmp_path / "org/tiny"
    (tmp_path / "org/tiny/recipe.yaml").touch()
    assert locate("org/tiny", cache).samefile(tmp_path / "org/tiny")


def test_offline_no_one_is_asked_what_a_name_could_mean(hub, cache, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org/tiny").mkdir(parents=True)
    assert locate("org/tiny", replace(cache, is_offline=True)).is_dir()
    assert hub.asked == []


def test_a_bare_name_that_is_no_folder_is_answered_with_the_address_it_could_be(hub, cache, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SourceError, match=r"No file or folder org/tiny .* write hf://org/tiny"):
        locate("org/tiny", cache)


def test_what_is_pushed_comes_back_byte_by_byte_and_replaces_an_earlier_push(hub, cache, tmp_path):
    folder = tmp_path / "model"
    for name, content in {"a.json": b"{}", "task/old.txt": b"old", "model.safetensors": WEIGHTS}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    assert re.fullmatch(r"http://127.0.0.1:\d+/org/new", push(folder, "hf://org/new", "first"))
    (folder / "task/old.txt").rename(folder / "task/new.txt")
    push(folder, "hf://org/new", "second")
    pulled = locate("hf://org/new", cache)
    assert names_in(pulled) == names_in(folder)
    assert all((pulled / name).read_bytes() == (folder / name).read_bytes() for name in names_in(folder))


def test_the_hubs_own_client_can_load_what_was_pushed(hub, tmp_path):
    from huggingface_hub import snapshot_download

    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_bytes(b"{}")
    (folder / "model.safetensors").write_bytes(WEIGHTS)
    url = push(folder, "hf://org/new", "first")
    there = snapshot_download("org/new", endpoint=url.rpartition("/org")[0], cache_dir=tmp_path / "theirs")
    assert (Path(there) / "model.safetensors").read_bytes() == WEIGHTS


def test_nothing_is_pushed_to_a_file_or_a_commit(hub, tmp_path):
    with pytest.raises(SourceError, match="Cannot push to"):
        push(tmp_path, "hf://org/new/file", "")
    with pytest.raises(SourceError, match=r"Cannot push to https://host/a\. Use hf://"):
        push(tmp_path, "https://host/a", "")


def test_a_push_that_fails_says_that_nothing_was_uploaded(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("attune.sources._retry.time.sleep", lambda seconds: None)
    with pytest.raises(
        SourceError, match=r"^Upload to hf://org/new failed: cannot reach the Hub.*Nothing was uploaded"
    ):
        push(tmp_path, "hf://org/new", "first")


COMMIT = {"sha": "1" * 40}


class Odd(Quiet):
    """A hub that answers what it is made to."""

    info, tree, link, asked = b"", b"", "", 0

    def do_GET(self):
        type(self).asked += 1
        body = (self.tree if "/tree/" in self.path else self.info).replace(b"COUNT", str(self.asked).encode())
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        if self.link and "/tree/" in self.path:
            self.send_header("Link", f'<{self.path}&cursor={self.asked}>; rel="next"')
        self.end_headers()
        self.wfile.write(body)


@pytest.mark.parametrize(
    ("info", "tree", "what"),
    [
        (b"<html><head><title>Log in</title>", b"", r"a web page \('Log in'\)"),
        (b"null", b"", "null"),
        (b"[]", b"", "a list"),
        (b'{"sha": 5}', b"", "another object"),
        (json.dumps(COMMIT).encode(), b"null", "null"),
        (json.dumps(COMMIT).encode(), b'{"error": "x"}', "another object"),
        (json.dumps(COMMIT).encode(), b"[[]]", "a list"),
        (json.dumps(COMMIT).encode(), b'[{"type": "file", "path": "a"}]', "a file without path, size or hash"),
    ],
)
def test_an_answer_that_is_not_the_hubs_is_named_in_one_line(cache, monkeypatch, info, tree, what):
    with serving(type("Handler", (Odd,), {"info": info, "tree": tree})) as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
        with pytest.raises(SourceError, match=f"answered with {what}, not as the Hub does") as refused:
            locate("hf://org/tiny", cache)
    assert str(refused.value).isprintable()
    assert files_in(cache.folder) == []


@pytest.mark.parametrize("path", ["a", "aCOUNT"])
def test_a_listing_without_end_is_left(cache, monkeypatch, path):
    monkeypatch.setattr("attune.sources._hub_api.MOST_PAGES", 30)
    tree = json.dumps([{"type": "file", "path": path, "size": 1, "oid": "1" * 40}]).encode()
    handler = type("Handler", (Odd,), {"info": json.dumps(COMMIT).encode(), "tree": tree, "link": "yes"})
    with serving(handler) as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
        with pytest.raises(SourceError, match="lists too many files"):
            locate("hf://org/tiny", cache)
    assert handler.asked <= 31
