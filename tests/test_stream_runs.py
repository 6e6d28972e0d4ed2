"""Whole runs over shards: killed and resumed on other ranks, over a slow line, with an index and without."""

import io
import json

import pytest

from attune.files import sha256

from miniatures import put
from processes import attune, kill, start, wait, wait_for_step
from range_server import Behavior, serving
from servers.hub import Hub, serve_hub
from tiny import EPOCH, write_recipe

pytestmark = pytest.mark.recipe

STEPS = 10


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny recipe, and its training set once more as shards."""
    import tarfile

    folder = tmp_path_factory.mktemp("streams")
    write_recipe(folder, 40)
    rows = [json.loads(line) for line in (folder / "train/manifest.jsonl").read_text().splitlines()]
    (folder / "shards").mkdir()
    for number in range(5):
        with tarfile.open(folder / f"shards/{number:03d}.tar", "w") as archive:
            for row in rows[number::5]:
                put(archive, f"{row['id']}.wav", (folder / "train" / row["audio"]).read_bytes())
                put(archive, f"{row['id']}.json", json.dumps({"text": row["text"]}).encode())
    return folder


def words(folder, run, *more, shards=None):
    settings = ["train.save_every=1", "train.eval_every=5", "data.test=[]", "train.strict=true", "--workers=1", EPOCH]
    stream = ["data.train=[]", f"data.stream.shards=[{shards or folder / 'shards'}]", "data.stream.window=12"]
    return ["train", str(folder / "recipe.yaml"), f"run={run}", f"train.steps={STEPS}", *settings, *stream, *more]


def ending(run):
    last = run / "checkpoints" / f"step-{STEPS:06d}"
    return [sha256(last / name) for name in ("model.safetensors", "optimizer.safetensors", "progress.json")]


@pytest.fixture(scope="module")
def quiet(folder):
    assert wait(start(words(folder, folder / "quiet"))) == [0]
    return ending(folder / "quiet")


def killed_at(processes, run, step):
    """kill -9 as soon as the checkpoint of a step is there."""
    wait_for_step(run, step)
    kill(processes)


@pytest.mark.parametrize(("before", "after"), [(1, 1), (1, 2), (2, 1)])
def test_killed_and_resumed_on_other_ranks_a_stream_ends_in_the_same_bits(folder, quiet, tmp_path, before, after):
    run = tmp_path / "run"
    for step in (2, 5):
        killed_at(start(words(folder, run), before), run, step)
    assert not (run / f"checkpoints/step-{STEPS:06d}").exists()
    assert wait(start(words(folder, run), after)) == [0] * after
    assert ending(run) == quiet
    log = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    resumed = [line for line in log if line["event"] == "resumed"]
    assert len(resumed) == 2 and resumed[-1]["ranks"] == after
    assert all(line["epoch_audio_seconds"] > 0 for line in log if line["event"] == "step")


def test_not_strict_a_stream_that_is_killed_ends_in_the_same_bits_on_the_same_ranks(folder, tmp_path):
    quiet, run = tmp_path / "quiet", tmp_path / "run"
    assert wait(start(words(folder, quiet, "train.strict=false"), 2)) == [0, 0]
    killed_at(start(words(folder, run, "train.strict=false"), 2), run, 3)
    assert wait(start(words(folder, run, "train.strict=false"), 2)) == [0, 0]
    assert ending(run) == ending(quiet)
    assert '"resumed"' in (run / "log.jsonl").read_text()


def test_a_stream_over_a_line_that_drops_and_refuses_ends_in_the_same_bits(folder, quiet, tmp_path):
    behavior = Behavior(drops=4, refusals=3, latency=0.01)
    with serving(folder / "shards", behavior) as url:
        shards = f"'{url}/{{000..004}}.tar'"
        assert wait(start(words(folder, tmp_path / "run", shards=shards))) == [0]
    assert behavior.drops == behavior.refusals == 0
    assert ending(tmp_path / "run") == quiet


def test_a_stream_from_a_source_of_another_package_ends_in_the_same_bits(folder, quiet, tmp_path):
    """`toy.depot` is one file, found by its module's name: its shards are listed, and read by byte ranges."""
    assert wait(start(words(folder, tmp_path / "run", shards=f"toy.depot://{folder}/shards/"))) == [0]
    assert ending(tmp_path / "run") == quiet


def test_an_index_of_remote_shards_trains_like_local_files(folder, tmp_path):
    """Rows that point into shards behind HTTP, against the same rows as files: same plan, same bits."""
    with serving(folder / "shards", Behavior(drops=2)) as url:
        source = f"{url}/{{000..004}}.tar"
        done = attune("prepare", "shards", "--from", source, "--to", tmp_path / "index", "--jobs", "1")
        assert done.returncode == 0, done.stderr
        local = [json.loads(line) for line in (folder / "train/manifest.jsonl").read_text().splitlines()]
        own = {row["id"]: row for row in local}
        remote = [json.loads(line) for line in (tmp_path / "index/train.jsonl").read_text().splitlines()]
        assert {row["id"] for row in remote} == own.keys()
        files = [
            {"id": row["id"], "audio": str(folder / "train" / own[row["id"]]["audio"]), "text": row["text"],
             "seconds": row["seconds"]}
            for row in remote
        ]  # fmt: skip
        (tmp_path / "files.jsonl").write_text("".join(json.dumps(row) + "\n" for row in files))
        ends = []
        for name, manifest in (("remote", tmp_path / "index/train.jsonl"), ("local", tmp_path / "files.jsonl")):
            more = ["train.save_every=5", "train.eval_every=5", "data.test=[]", "--workers=1"]
            run = ["train", str(folder / "recipe.yaml"), f"run={tmp_path / name}", f"data.train=[{manifest}]"]
            assert wait(start([*run, f"train.steps={STEPS}", *more])) == [0]
            ends.append(ending(tmp_path / name)[:2])
        assert ends[0] == ends[1]


def parquet_of(folder, rows):
    """Rows of a manifest as Common Voice on the Hub has them: sentence, client_id, and audio as bytes."""
    import pyarrow
    import pyarrow.parquet

    audio = [{"bytes": (folder / row["audio"]).read_bytes(), "path": row["audio"]} for row in rows]
    table = {"client_id": ["v"] * len(rows), "audio": audio, "sentence": [row["text"] for row in rows]}
    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(table), out, row_group_size=3)
    return out.getvalue()


@pytest.fixture
def voices(folder, monkeypatch):
    """The data of the recipe as a dataset of Parquet files on a hub: train in four files, validation in one."""
    pytest.importorskip("pyarrow")
    rows = [json.loads(line) for line in (folder / "train/manifest.jsonl").read_text().splitlines()]
    dev = [json.loads(line) for line in (folder / "dev/manifest.jsonl").read_text().splitlines()]
    files = {f"be/train-{part:05d}-of-00004.parquet": parquet_of(folder / "train", rows[part::4]) for part in range(4)}
    files["be/validation-00000-of-00001.parquet"] = parquet_of(folder / "dev", dev)
    hub = Hub()
    hub.put("org/voices", files, kind="datasets")
    with serve_hub(hub) as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
        yield hub


def test_a_hub_set_streamed_for_training_and_scoring_ends_in_the_same_bits_when_killed(folder, voices, tmp_path):
    shards, dev = "hf://datasets/org/voices/be/train", "data.dev=[hf://datasets/org/voices/be/validation]"
    run, quiet = tmp_path / "run", tmp_path / "quiet"
    assert wait(start(words(folder, quiet, dev, shards=shards))) == [0]
    killed_at(start(words(folder, run, dev, shards=shards)), run, 6)
    assert wait(start(words(folder, run, dev, shards=shards))) == [0]
    assert ending(run) == ending(quiet)
    logs = [[json.loads(line) for line in (each / "log.jsonl").read_text().splitlines()] for each in (quiet, run)]
    assert sum(line["event"] == "resumed" for line in logs[1]) == 1
    scores = [{line["step"]: line["cer"] for line in log if line["event"] == "scores"} for log in logs]
    assert scores[0] == scores[1] and set(scores[0]) == {5, 10}
