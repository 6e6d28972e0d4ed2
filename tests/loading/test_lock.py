"""What a run used is written down, and used again by whoever goes on with it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from attune import recipe as recipes
from attune.cli import main
from attune.errors import SourceError
from attune.loading.lock import read_lock, sources_of
from attune.run import Run
from attune.sources import _fetch as fetching
from attune.sources import shown
from attune.testing import make_corpus

import processes
from servers.web import Site, web
from tiny import RECIPE


@pytest.fixture
def site(tmp_path, monkeypatch):
    """The corpora on a server; nothing of them here."""
    monkeypatch.setenv("ATTUNE_CACHE", str(tmp_path / "cache"))
    files = {}
    for split, seed in (("train", 1), ("dev", 2)):
        folder = make_corpus(tmp_path / "there" / split, utterances=8, seed=seed).parent
        found = (path for path in folder.rglob("*") if path.is_file())
        files |= {f"/{split}/{path.relative_to(folder)}": path.read_bytes() for path in found}
    site = Site(files)
    with web(site) as url:
        recipe = tmp_path / "recipe.yaml"
        text = RECIPE.format(folder=tmp_path, train=f"{url}/train/manifest.jsonl", dev=f"{url}/dev/manifest.jsonl")
        recipe.write_text(text)
        yield site


def short(*words):
    return [*words, "train.steps=2", "train.warmup=1", "train.eval_every=2", "train.save_every=1", "--workers", "0"]


def test_ranks_fetch_everything_once(site, tmp_path):
    started = processes.start(short("train", str(tmp_path / "recipe.yaml"), "--device", "cpu"), ranks=2)
    assert processes.wait(started) == [0, 0]
    assert len(site.asked) == len(set(site.asked)) == len(site.files)
    lock = read_lock(tmp_path / "run/sources.lock.json")
    assert len(lock) == 4


def test_a_run_goes_on_with_the_data_it_began_with_and_is_evaluated_on_it(site, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(fetching, "FRESH_SECONDS", 0.0)
    words = short("train", str(tmp_path / "recipe.yaml"))
    assert main(words) == 0, capsys.readouterr().err
    site.files["/train/manifest.jsonl"] += b"\n"
    site.files["/dev/manifest.jsonl"] = site.files["/dev/manifest.jsonl"].split(b"\n")[0] + b"\n"
    asked = len(site.asked)
    assert main([*words, "train.steps=3", "--reschedule"]) == 0, capsys.readouterr().err
    assert main(["evaluate", str(tmp_path / "run"), "--on", "dev", "--workers", "0"]) == 0
    assert len(site.asked) == asked
    assert json.loads((tmp_path / "run/scores.json").read_text())["dev"]["counts"]["num_ref_sents"] == 8


def test_another_recipe_in_a_run_that_trained_nothing_is_locked_anew(site, tmp_path):
    run = Run(tmp_path / "run")
    run.folder.mkdir()
    old = recipes.load(tmp_path / "recipe.yaml", ["seed=1"]).recipe
    (run.folder / "recipe.yaml").write_text(recipes.resolved_yaml(old))
    run.set_status("failed")
    run.lock.write_text('{"format": 1, "sources": []}')
    assert main(short("train", str(tmp_path / "recipe.yaml"))) == 0
    assert len(read_lock(run.lock)) == 4


@pytest.mark.parametrize("text", ["", "[]", '{"format": 1}', '{"format": 9, "sources": []}'])
def test_what_is_no_lock_is_told(tmp_path, text):
    (tmp_path / "lock").write_text(text)
    with pytest.raises(SourceError, match="is not a lock file|written by another version"):
        read_lock(tmp_path / "lock")


def test_a_lock_of_another_recipe_is_told(site, tmp_path, capsys):
    other = {"source": "x", "revision": "", "files": {}, "is_folder": False}
    (tmp_path / "lock.json").write_text(json.dumps({"format": 1, "sources": [other]}))
    assert main(["fetch", str(tmp_path / "recipe.yaml"), "--locked", str(tmp_path / "lock.json")]) == 2
    assert "is not in the lock. Use the lock of the same recipe." in capsys.readouterr().err


def test_a_recipe_says_what_it_needs_and_a_run_that_goes_on_needs_no_weights():
    recipe = recipes.load(Path(recipes.__file__).parent / "recipes" / "demo.yaml", []).recipe
    keys = [named.key for named in sources_of(recipe)]
    assert keys == ["data.train", "data.dev", "data.test", "model.weights"]
    assert "model.weights" not in [named.key for named in sources_of(recipe, begins=False)]


def test_language_models_are_fetched_and_locked_too():
    path = Path(recipes.__file__).parent / "recipes" / "demo.yaml"
    final = "decode.final={search: beam, lm: s3://a/large.arpa}"
    recipe = recipes.load(path, ["decode.search=beam", "decode.lm=hf://a/lm/small.arpa", final]).recipe
    named = {each.key: each.source for each in sources_of(recipe, begins=False)}
    assert named["decode.lm"] == "hf://a/lm/small.arpa" and named["decode.final.lm"] == "s3://a/large.arpa"


def test_a_signed_address_in_a_recipe_is_the_same_experiment_signed_anew(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(RECIPE.format(folder=tmp_path, train="'https://h/a.jsonl?X-Amz-Signature=5ecret'", dev="d"))
    one = recipes.load(path, []).recipe
    other = replace(one, data=replace(one.data, train=("https://h/a.jsonl?X-Amz-Signature=0ther",)))
    assert recipes.differences(one, other) == []
    assert "5ecret" not in recipes.resolved_yaml(one)


def test_a_lock_of_an_earlier_version_that_names_a_credential_still_holds(tmp_path):
    lock = tmp_path / "sources.lock.json"
    entry = {"source": "https://h/a?id=5ecret&jwt=5ecret", "revision": "1", "files": {}, "is_folder": False}
    lock.write_text(json.dumps({"format": 1, "sources": [entry]}))
    assert list(read_lock(lock)) == [shown("https://h/a?id=5ecret&jwt=other")]


def test_no_text_of_a_recipe_keeps_what_opens_an_address(tmp_path):
    path = tmp_path / "recipe.yaml"
    for address in ("s3://KEY:5ecret@b/a.jsonl", "https://h/a.jsonl?private_key=5ecret", "https://h/a.jsonl?k=5ecret"):
        path.write_text(RECIPE.format(folder=tmp_path, train=f"'{address}'", dev="d"))
        assert "5ecret" not in recipes.resolved_yaml(recipes.load(path, []).recipe)
