"""Data that changed under its name, size and time is noticed, and named."""

import json
import os
import tarfile

import pytest

from attune import recipe as recipes
from attune.errors import CheckpointError, Preempted
from attune.site import this_site
from attune.sources import Cache, locate
from attune.stages.context import Started
from attune.stages.train import Request, train
from attune.world import World

from miniatures import put
from range_server import Behavior, serving
from tiny import write_recipe


def one_step(recipe, *changes):
    """Train until a stop signal that comes at once."""
    loaded = recipes.load(recipe, changes).recipe
    for _ in train(loaded, Request(["attune"], stop_requested=lambda: True), this_site(0, "cpu"), World.alone()):
        pass


def rewrite(path, content: bytes):
    """Another content of the same size and modification time."""
    before = path.stat()
    assert len(content) == before.st_size and content != path.read_bytes()
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_manifest_with_other_texts(tmp_path):
    recipe = write_recipe(tmp_path, utterances=8)
    with pytest.raises(Preempted):
        one_step(recipe)
    manifest = tmp_path / "train/manifest.jsonl"
    os.utime(manifest, (1, 1))  # long ago: its time alone tells nothing
    with pytest.raises(Preempted):
        one_step(recipe)
    text = manifest.read_text()
    word = json.loads(text.splitlines()[0])["text"][:3]
    rewrite(manifest, text.replace(word, word[::-1]).encode())
    with pytest.raises(CheckpointError, match=r"The training data \(manifest\) has changed since"):
        one_step(recipe)


def test_a_dev_set_with_other_texts_is_noted_and_training_goes_on(tmp_path):
    recipe = write_recipe(tmp_path, utterances=8)
    with pytest.raises(Preempted):
        one_step(recipe)
    loaded = recipes.load(recipe, ()).recipe

    def notes():
        events = train(loaded, Request(["attune"], stop_requested=lambda: True), this_site(0, "cpu"), World.alone())
        return next(event for event in events if isinstance(event, Started)).notes

    assert notes() == ()
    manifest = tmp_path / "dev/manifest.jsonl"
    manifest.write_text("".join(manifest.read_text().splitlines(keepends=True)[:-1]))
    assert "data.dev (manifest) has changed since" in " ".join(notes())


def write_shard(path, rows, folder):
    with tarfile.open(path, "w") as archive:
        for row in rows:
            put(archive, f"{row['id']}.wav", (folder / row["audio"]).read_bytes())
            put(archive, f"{row['id']}.json", json.dumps({"text": row["text"]}).encode())


def test_shards_that_were_swapped(tmp_path):
    recipe = write_recipe(tmp_path, utterances=8)
    rows = [json.loads(line) for line in (tmp_path / "train/manifest.jsonl").read_text().splitlines()]
    (tmp_path / "shards").mkdir()
    for number in (0, 1):
        write_shard(tmp_path / f"shards/{number}.tar", rows[number::2], tmp_path / "train")
    changes = "data.train=[]", f"data.stream.shards=[{tmp_path / 'shards'}]", "data.stream.window=4"
    with pytest.raises(Preempted):
        one_step(recipe, *changes)
    one, other = tmp_path / "shards/0.tar", tmp_path / "shards/1.tar"
    one.rename(tmp_path / "aside")
    other.rename(one)
    (tmp_path / "aside").rename(other)
    with pytest.raises(CheckpointError, match=r"The training data \(.*0.tar, .*1.tar\) has changed"):
        one_step(recipe, *changes)


def test_a_cached_file_that_a_run_is_locked_to(tmp_path):
    (tmp_path / "served").mkdir()
    (tmp_path / "served/lm.arpa").write_bytes(b"the right content")
    with serving(tmp_path / "served", Behavior()) as url:
        cache = Cache(tmp_path / "cache")
        path = locate(f"{url}/lm.arpa", cache)
        (entry,) = cache.used.values()
        rewrite(path, b"another content!!")
        again = Cache(tmp_path / "cache", locked={entry.source: entry})
        assert locate(f"{url}/lm.arpa", again).read_bytes() == b"the right content"
