"""From a .nemo file or from nothing through training and evaluation to a folder for others."""

import json

import numpy as np
import pytest
import soundfile
import torch
from safetensors.torch import load_file

import attune
from attune import recipe as recipes
from attune.cli import main
from attune.errors import ConfigError
from attune.families.transducer.archive import read_archive
from attune.families.transducer.model import TransducerModel
from attune.families.transducer.shape import read_shape
from attune.files import sha256
from attune.loading.begin import ImportRequest, import_model
from attune.site import this_site
from attune.stages.check import check_recipe
from attune.stages.context import Saved
from attune.stages.eval_target import open_eval_target
from attune.stages.train import Request, train
from attune.world import World

from tiny import write_recipe
from transducers import golden_folder

pytestmark = pytest.mark.recipe
RECIPE = """\
run: {folder}/run
seed: 17
data: {{train: [{train}], dev: [{dev}], test: [{dev}]}}
task: {{name: transcribe, tokens: bpe, vocabulary: 40}}
model: {{family: transducer, encoder: contextnet, size: dummy, tokens: task}}
augment: {{masks: {{time_masks: 10, frequency_masks: 2, frequency_bins: 27}}}}
batches: {{micro_utterances: 3, micros_per_step: 2}}
optimizer: {{lr: 0.003}}
train: {{steps: 4, warmup: 1, eval_every: 4, save_every: 2, log_every: 1}}
"""

OWN = {"tokens": "characters", "vocabulary": None}  # the task's own tokens, when the weights' are learned


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    return write_recipe(tmp_path_factory.mktemp("transducer"), utterances=10, text=RECIPE)


@pytest.fixture(scope="module")
def run(recipe):
    return attune.train(recipe)


@pytest.fixture(scope="module")
def nemo():
    return golden_folder("fastconformer") / "model.nemo"


def from_nemo(nemo, **settings):
    return {"weights": str(nemo), "encoder": None, "size": None, **settings}


def losses(run):
    return [
        json.loads(line)["loss"] for line in (run.folder / "log.jsonl").read_text().splitlines() if '"loss"' in line
    ]


def values(source, **settings):
    return [(each.id, each.value) for each in attune.evaluate(source, on="dev", **settings).predictions]


def test_a_new_model_learns_the_tasks_tokens_and_is_evaluated_the_same_anywhere(run):
    assert losses(run)[-1] < losses(run)[0]
    expected = values(run.folder)
    for batch in (1, 4):
        assert values(run.model, batch=batch) == expected


def test_a_new_model_is_exported_as_a_nemo_file_that_is_read_as_the_same_model(run, tmp_path):
    archive = read_archive(run.model / "model.nemo")
    assert archive.config["decoder"]["vocab_size"] == archive.config["joint"]["num_classes"] == 39
    assert len(archive.config["joint"]["vocabulary"]) == len(archive.config["labels"]) == 39
    assert read_shape(archive.config).encoder.blocks[0].stride == 4
    assert main(["import", str(run.model / "model.nemo"), "--to", str(tmp_path / "again")]) == 0
    ours, theirs = load_file(run.model / "model.safetensors"), load_file(tmp_path / "again/model.safetensors")
    assert all(torch.equal(ours[name], theirs[name]) for name in ours) and ours.keys() == theirs.keys()
    dev = str(run.folder.parent / "dev/manifest.jsonl")
    again = attune.evaluate(tmp_path / "again", on=dev).predictions
    assert [each.value for each in again] == [value for _, value in values(run.folder)]


def test_the_nemo_file_can_be_had_alone(run, tmp_path, capsys):
    assert main(["export", str(run.folder), "--to", str(tmp_path / "x.nemo")]) == 0
    alone, whole = read_archive(tmp_path / "x.nemo"), read_archive(run.model / "model.nemo")
    assert alone.config_text == whole.config_text and alone.files == whole.files
    assert all(torch.equal(alone.tensors[name], whole.tensors[name]) for name in whole.tensors)
    assert [path.name for path in tmp_path.iterdir()] == ["x.nemo"]
    assert capsys.readouterr().out.endswith("x.nemo\n")


def test_a_fast_conformer_is_written_for_transformers(recipe, tmp_path, capsys):
    from transformers import AutoTokenizer, ParakeetForTDT

    settings = ["model.encoder=fastconformer", "model.durations=[0,1,2]", "data.test=[]", "train.eval_every=null"]
    assert main(["train", str(recipe), f"run={tmp_path / 'run'}", *settings]) == 0
    words = ["export", str(tmp_path / "run"), "--to", str(tmp_path / "parakeet"), "--for-transformers"]
    assert main(words) == 0
    theirs, report = ParakeetForTDT.from_pretrained(tmp_path / "parakeet", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    ours = load_file(tmp_path / "run/model/model.safetensors")
    assert torch.equal(theirs.joint.head.weight, ours["joint.output.weight"])
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "parakeet")
    text = json.loads((recipe.parent / "dev/manifest.jsonl").read_text().splitlines()[0])["text"]
    assert tokenizer.decode(tokenizer(text).input_ids) == text
    assert main(words) == 2 and "already exists" in capsys.readouterr().err


def test_what_transformers_has_no_format_for_is_refused(run, tmp_path, capsys):
    assert main(["export", str(run.folder), "--to", str(tmp_path / "out"), "--for-transformers"]) == 2
    assert "FastConformer with an LSTM prediction net only" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def _long_rows(recipe):
    """A manifest with one row of 70 s: the same words again and again, with pauses."""
    audio = recipe.parent / "dev/audio/00000.wav"
    once = np.pad(attune.load_audio(audio), (0, 8000))
    many = np.tile(once, 70 * 16_000 // len(once) + 1)[: 70 * 16_000]
    soundfile.write(recipe.parent / "long.wav", many, 16_000)
    row = {"audio": str(recipe.parent / "long.wav"), "text": "one", "seconds": 70.0}
    (recipe.parent / "long.jsonl").write_text(json.dumps(row) + "\n")
    return recipe.parent / "long.jsonl"


def test_long_recordings_are_cut_to_be_transcribed_and_heard_whole_where_they_are_learned(run, recipe, monkeypatch):
    heard = []
    encode = TransducerModel.encode
    monkeypatch.setattr(TransducerModel, "encode", lambda self, batch: heard.append(batch) or encode(self, batch))
    rows = _long_rows(recipe)
    attune.load(run.folder, device="cpu").transcribe(rows.with_suffix(".wav"))
    assert max(int(batch.lengths.max()) for batch in heard) <= 60 * 16_000
    heard.clear()
    data = {"train": [str(rows)], "dev": [str(rows)], "test": [], "max_seconds": 80.0}
    long = attune.train(recipe, run=f"{recipe.parent}/long", data=data, task=OWN, train={"steps": 2})
    assert {int(batch.lengths.max()) for batch in heard} == {70 * 16_000}
    heard.clear()
    words = ["--on", str(rows), "--workers=0"]
    assert main(["evaluate", str(long.folder), *words, "data.long_rows=split"]) == 0
    assert max(int(batch.lengths.max()) for batch in heard) <= 60 * 16_000


def test_a_transducer_does_not_read_window_after_window(run, recipe, capsys):
    audio = recipe.parent / "dev/audio/00000.wav"
    assert main(["transcribe", str(run.folder), str(audio), "--device", "cpu", "--chunking", "timestamps"]) == 2
    assert "the family 'transducer' does not" in capsys.readouterr().err


def test_statistics_of_norms_are_in_the_checkpoint(run):
    state = load_file(run.folder / "checkpoints/step-000004/model.safetensors")
    assert int(state["encoder.encoder.0.mconv.2.num_batches_tracked"]) == 4
    assert float(state["encoder.encoder.0.mconv.2.running_mean"].abs().max()) > 0


def test_a_run_that_is_killed_and_goes_on_ends_in_the_same_bits(recipe, run):
    folder = recipe.parent / "killed"
    settings = recipes.load(recipe, [f"run={folder}"]).recipe
    site = this_site(workers=0, device="cpu")
    events = train(settings, Request(()), site, World.alone())
    next(event for event in events if isinstance(event, Saved))
    events.close()
    assert (folder / "checkpoints/step-000002").exists() and not (folder / "checkpoints/step-000004").exists()
    list(train(settings, Request(()), site, World.alone()))
    for name in ("model.safetensors", "optimizer.safetensors"):
        last = [each / "checkpoints/step-000004" / name for each in (run.folder, folder)]
        assert sha256(last[0]) == sha256(last[1])


def test_a_nemo_file_is_trained_on_with_its_own_tokens(recipe, nemo):
    run = attune.train(recipe, run=f"{recipe.parent}/own", model=from_nemo(nemo, tokens="own"), task=OWN)
    assert not any(run.task.iterdir())
    before, after = read_archive(nemo), read_archive(run.model / "model.nemo")
    assert before.config_text == after.config_text and before.files == after.files
    assert before.tensors.keys() == after.tensors.keys()
    name = "encoder.layers.0.conv.batch_norm.running_mean"
    assert not torch.equal(before.tensors[name], after.tensors[name])
    assert values(run.folder) == values(run.model, batch=2)


@pytest.mark.parametrize(
    ("key", "asked"), [("vocabulary", {}), ("tokenizer", {"vocabulary": None, "tokenizer": "nowhere.model"})]
)
def test_tokens_of_the_task_that_would_not_be_learned_are_refused(recipe, nemo, key, asked):
    with pytest.raises(ConfigError, match=rf"task\.{key} .* or set model\.tokens=task"):
        attune.train(recipe, run=f"{recipe.parent}/unused-{key}", model=from_nemo(nemo, tokens="own"), task=asked)


def test_frozen_norms_keep_their_statistics(recipe, nemo):
    settings = from_nemo(nemo, tokens="own", batch_norm="frozen", gradient_checkpointing=True)
    run = attune.train(recipe, run=f"{recipe.parent}/frozen", model=settings, task=OWN)
    before, after = read_archive(nemo).tensors, read_archive(run.model / "model.nemo").tensors
    kept = [name for name in before if "running" in name or "tracked" in name]
    assert kept and all(torch.equal(before[name], after[name]) for name in kept)
    assert not torch.equal(before["joint.enc.weight"], after["joint.enc.weight"])


def test_a_nemo_file_takes_on_the_tasks_tokens_and_says_how_many_rows_it_kept(recipe, nemo):
    settings = from_nemo(nemo, tokens="task")
    overrides = [f"run={recipe.parent}/new", f"model.weights={nemo}", "model.encoder=null", "model.size=null"]
    found = _drained(check_recipe(recipes.load(recipe, overrides).recipe, False, this_site(workers=0)))
    assert found.can_run and found.notes and "reuse pretrained embeddings" in found.notes[0]
    run = attune.train(recipe, run=f"{recipe.parent}/new", model=settings)
    archive = read_archive(run.model / "model.nemo")
    assert archive.config["joint"]["num_classes"] == 39 and archive.config["nemo_version"] == "3.0.0"
    again = attune.train(recipe, run=f"{recipe.parent}/newer", model={**settings, "weights": str(run.model)})
    assert json.loads((again.folder / "start.json").read_text())["new_tensors"] == []
    assert values(again.folder) == values(again.model, batch=2)
    _refuses_to_forget_its_tokens(recipe, run)


def test_an_imported_model_takes_on_the_tasks_tokens_as_its_nemo_file_does(recipe, nemo, tmp_path):
    folder = tmp_path / "imported"
    import_model(ImportRequest(str(nemo), folder), this_site())
    found = {}
    for weights in (nemo, folder):
        overrides = [f"run={tmp_path}/run", f"model.weights={weights}", "model.encoder=null", "model.size=null"]
        check = _drained(check_recipe(recipes.load(recipe, overrides).recipe, False, this_site(workers=0)))
        assert check.can_run
        found[weights] = check.notes
    assert found[nemo] == found[folder] and "reuse pretrained embeddings" in found[folder][0]


def _refuses_to_forget_its_tokens(recipe, run):
    """With the files of a .nemo that the weights descend from, its tokens come along, and mean nothing any more."""
    for weights in (run.folder, run.model):
        model = from_nemo(weights, tokens="own")
        with pytest.raises(ConfigError, match=r"no tokens of their own\. Set model\.tokens=task"):
            attune.train(recipe, run=f"{recipe.parent}/back", model=model, task=OWN)


def test_a_check_lists_the_characters_that_the_tokens_of_a_nemo_file_cannot_spell(recipe, nemo):
    overrides = [f"run={recipe.parent}/odd", f"model.weights={nemo}", "model.encoder=null", "model.size=null"]
    overrides += ["model.tokens=own", "task.tokens=characters", "task.vocabulary=null", f"data.dev=[{_odd(recipe)}]"]
    found = _drained(check_recipe(recipes.load(recipe, overrides).recipe, False, this_site(workers=0)))
    (dev,) = (split for split in found.splits if split.rows.name == "dev")
    assert dev.unknown == {"2": 2, "ß": 1}


def _odd(recipe):
    rows = [json.loads(line) for line in (recipe.parent / "dev/manifest.jsonl").read_text().splitlines()]
    texts = ["r2d2 erases", "stop ß 2", *["stop"] * len(rows)]
    odd = recipe.parent / "dev/odd.jsonl"
    odd.write_text("".join(json.dumps({**row, "text": text}) + "\n" for row, text in zip(rows, texts, strict=False)))
    return odd


def _drained(generator):
    while True:
        try:
            next(generator)
        except StopIteration as stop:
            return stop.value


def test_a_nemo_file_is_evaluated_as_it_is(recipe, nemo, tmp_path):
    overrides = [f"model.weights={nemo}", "model.encoder=null", "model.size=null", "model.tokens=own"]
    overrides += ["task.tokens=characters", "task.vocabulary=null"]
    words = ["evaluate", str(recipe), "--on", "dev", "--out", str(tmp_path / "out.jsonl"), "--workers=0", *overrides]
    assert main(words) in (0, None)
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 6


def test_tokens_of_another_origin_are_refused_for_evaluation(recipe, run):
    overrides = [f"model.weights={run.folder}", "model.tokens=own"]
    with pytest.raises(ConfigError, match="model.tokens=task"):
        open_eval_target(str(recipe), overrides, this_site(workers=0))


def test_a_tokenizer_is_learned_from_manifests_and_used_by_a_recipe(recipe, tmp_path, capsys):
    file = tmp_path / "tokens.model"
    manifest = recipe.parent / "train/manifest.jsonl"
    assert main(["tokenizer", str(manifest), "--to", str(file), "--size", "26", "--type", "unigram"]) == 0
    assert "26 tokens from 10 texts" in capsys.readouterr().out
    overrides = ["task.vocabulary=null", f"task.tokenizer={file}", "task.tokens=unigram", f"run={tmp_path}/run"]
    overrides += ["train.steps=2", "train.eval_every=2", "data.test=[]"]
    assert main(["train", str(recipe), "--workers=0", "--device=cpu", *overrides]) in (0, None)
    assert (tmp_path / "run/task/tokenizer.model").read_bytes() == file.read_bytes()


def test_a_model_is_not_imported_over_another_nor_from_anything(tmp_path, capsys):
    (tmp_path / "model").mkdir()
    assert main(["import", "x.bin", "--to", str(tmp_path / "new")]) == 2
    (tmp_path / "x.nemo").write_bytes(b"")
    assert main(["import", str(tmp_path / "x.nemo"), "--to", str(tmp_path / "model")]) == 2
    assert "already exists" in capsys.readouterr().err
