import json
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
import soundfile

from attune.errors import DataError
from attune.recipe import load
from attune.site import Site
from attune.sources import Cache
from attune.stages.check import check_manifest, check_recipe
from attune.testing.data import make_corpus
from attune.text.normalizers import whisper_english

from miniatures import put, shard
from tiny import write_recipe
from tiny_whisper import MULTILINGUAL, write_whisper


def finished(stage):
    """What a stage returns, once it has been through all of its events."""
    while True:
        try:
            next(stage)
        except StopIteration as end:
            return end.value


def site(folder):
    return Site(Cache(folder / "cache"), workers=1)


def checked(recipe, *overrides, decodes=False):
    return finished(check_recipe(load(recipe, overrides).recipe, None if decodes else 0, site(recipe.parent)))


def checked_manifest(manifest, decodes=True):
    return finished(check_manifest(str(manifest), None if decodes else 0, site(manifest.parent)))


def edit(manifest: Path, **rows):
    """Change rows of a manifest: `_3={"text": "hello"}` sets the text of row 3, and None takes a field away."""
    lines = [json.loads(line) for line in manifest.read_text().splitlines()]
    for name, changes in rows.items():
        row = lines[int(name.removeprefix("_"))]
        row.update(changes)
    kept = [{key: value for key, value in row.items() if value is not None} for row in lines]
    manifest.write_text("".join(json.dumps(row) + "\n" for row in kept))


@pytest.fixture
def recipe(tmp_path):
    return write_recipe(tmp_path)


@pytest.fixture
def train(recipe):
    return recipe.parent / "train/manifest.jsonl"


@pytest.fixture
def dev(recipe):
    return recipe.parent / "dev/manifest.jsonl"


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """What is found where nothing is wrong."""
    return checked(write_recipe(tmp_path_factory.mktemp("sound")))


def reasons(problems):
    return {problem.where.rpartition(":")[2]: problem.reason for problem in problems}


def test_a_sound_recipe_can_run_and_nothing_is_written(recipe):
    before = sorted(recipe.parent.rglob("*"))
    found = checked(recipe, decodes=True)
    assert found.can_run
    assert [split.rows.name for split in found.splits] == ["train", "dev", "test"]
    assert [split.rows.utterances for split in found.splits] == [24, 6, 6]
    assert [split.rows.speakers for split in found.splits] == [3, 2, 2]
    assert all(split.rows.bad_audio == () for split in found.splits)
    assert sorted(recipe.parent.rglob("*")) == before


def test_the_plan_is_that_of_the_first_epoch(sound):
    plan = sound.plan
    assert plan.steps_per_epoch == -(-plan.micros // 4)
    assert plan.epochs == 12 / plan.steps_per_epoch
    assert 0 < plan.padding_share < 0.5
    assert 0 < plan.worst_seconds <= 8
    assert len(plan.worst_longest) == min(3, plan.worst_utterances)


def test_alone_in_its_batch_the_longest_utterance_is_the_worst(recipe, train):
    seconds = {row["id"]: row["seconds"] for row in map(json.loads, train.read_text().splitlines())}
    plan = checked(recipe, "batches.micro_seconds=null", "batches.micro_utterances=1").plan
    longest = max(seconds, key=seconds.get)
    assert (plan.worst_utterances, plan.worst_seconds, plan.worst_longest) == (1, seconds[longest], (longest,))
    assert plan.padding_share == pytest.approx(0)


def test_rates_are_shown_at_the_start_the_end_of_the_warmup_halfway_and_at_the_end(sound, recipe):
    assert [step for step, _ in sound.rates] == [1, 2, 6, 12]
    assert dict(sound.rates)[2] == 0.01
    assert [step for step, _ in checked(recipe, "train.warmup=0", "train.steps=1").rates] == [1]


def test_the_first_example_reads_as_its_text(sound):
    example = sound.example
    assert example.reads == example.reference
    assert example.tokens == len(example.reference)
    assert example.frames == pytest.approx(example.seconds * 100 / 3, abs=2)
    assert example.frames > example.frames_needed >= example.tokens


def test_the_first_example_is_shown_as_it_is_normalized(recipe, train):
    edit(train, **{f"_{row}": {"text": "Say, ONE."} for row in range(24)})
    example = checked(recipe, "task.normalizer=basic").example
    assert (example.reference, example.reads) == ("Say, ONE.", "say one")


def test_training_leaves_out_what_evaluation_scores(recipe):
    found = checked(recipe, "data.max_seconds=1.2", "data.min_seconds=0.4")
    train, dev, _ = found.splits
    assert train.too_long and train.too_short and dev.too_long
    assert train.outside_seconds > 1.2 * train.too_long
    assert dev.rows.utterances == 6
    assert found.can_run


def test_bad_rows_are_listed_and_stop_a_run_unless_they_may_be_dropped(recipe, train, dev):
    edit(train, _1={"id": "00000"}, _2={"text": " "})
    edit(dev, _0={"audio": "audio/nowhere.wav"})
    found = checked(recipe)
    assert not found.can_run
    assert reasons(found.splits[0].rows.bad_rows) == {"2": "duplicate id, first on line 1", "3": "empty text"}
    assert "missing audio file" in reasons(found.splits[1].rows.bad_rows)["1"]
    assert found.plan and found.example
    assert checked(recipe, "data.bad_rows=drop").can_run


def test_no_policy_excuses_a_split_without_a_single_good_row(recipe, dev):
    edit(dev, **{f"_{row}": {"text": ""} for row in range(6)})
    found = checked(recipe, "data.bad_rows=drop")
    assert not found.can_run
    assert "data.dev: No valid row." in found.troubles


def test_bad_audio_is_found_by_decoding_only(recipe, train):
    (train.parent / "audio/00005.wav").write_text("this is text")
    assert (checked(recipe).splits[0].rows.bad_audio, checked(recipe).splits[0].rows.decoded) == ((), 0)
    assert checked(recipe).can_run
    found = checked(recipe, decodes=True)
    assert "is not audio" in reasons(found.splits[0].rows.bad_audio)["6"]
    assert not found.can_run


def test_a_text_too_long_for_its_audio_cannot_be_learned(recipe, train, dev):
    edit(train, _3={"text": "one two " * 100})
    edit(dev, _3={"text": "one two " * 100})
    found = checked(recipe)
    assert "needs 799 frames for its target" in reasons(found.splits[0].bad_targets)["4"]
    assert found.splits[1].bad_targets == ()  # bad for the score, and no more than that
    assert not found.can_run
    assert checked(recipe, "data.bad_rows=drop").can_run


def test_what_is_not_trained_on_need_not_be_learnable(recipe, train):
    edit(train, _3={"text": "one two " * 100, "seconds": 31.0})
    assert checked(recipe).can_run


@pytest.mark.parametrize("field", ["text", "audio"])
def test_an_evaluation_set_is_scored_whole_or_not_at_all(recipe, dev, field):
    edit(dev, _2={field: None})
    found = checked(recipe, "data.bad_rows=drop")
    assert f"has no {field}" in reasons(found.splits[1].bad_targets)["3"]
    assert not found.can_run


def test_characters_that_training_never_showed_are_named_with_their_utterances(recipe, dev):
    edit(dev, _0={"text": "öne two"}, _1={"text": "öç"})
    found = checked(recipe)
    assert found.splits[1].unknown == {"ö": 2, "ç": 1}
    assert found.splits[0].unknown == {}
    assert found.can_run


def test_characters_are_judged_after_normalization(recipe, dev):
    edit(dev, _0={"text": "ONE, two"})
    assert checked(recipe).splits[1].unknown == {"E": 1, "N": 1, "O": 1, ",": 1}
    assert checked(recipe, "task.normalizer=basic").splits[1].unknown == {}


def test_what_even_a_flawless_model_would_be_scored_with_is_told(recipe, dev):
    edit(dev, _0={"text": "oh seven nine"})
    assert checked(recipe, "task.normalizer=basic").splits[1].floor is None
    # Learned as 079, which scoring takes for 79.
    floor = checked(recipe, "task.normalizer=english").splits[1].floor
    assert floor.score.metric.name == "wer" and floor.score.value > 0 and floor.causes == ("normalizer", "vocabulary")
    assert checked(recipe, "task.normalizer=english", "task.learn=written").splits[1].floor is None
    edit(dev, _0={"text": "öne two"})
    assert checked(recipe).splits[1].floor.score.value > 0


def test_the_best_score_of_a_flawless_model_is_that_of_the_primary_metric(recipe, dev):
    decibels = ["task.name=toy.decibels", "train.keep_best=dev.fidelity"]
    assert checked(recipe, *decibels).splits[1].floor is None
    perfect = 10 * np.log10([len(json.loads(row)["text"]) + 1 for row in dev.read_text().splitlines()]).mean()
    edit(dev, _0={"text": "öne two"})
    floor = checked(recipe, *decibels).splits[1].floor
    assert floor.score.metric.name == "fidelity" and floor.score.value < perfect


def test_labels_that_training_never_showed_are_named(recipe, dev):
    edit(dev, _0={"labels": {"register": "whistle"}})
    found = checked(recipe, "task.name=classify", "task.label=register", "train.keep_best=null")
    assert found.splits[1].unknown == {"whistle": 1}
    assert found.example.reads == found.example.reference
    assert found.can_run


def test_several_troubles_are_told_at_once(recipe, tmp_path):
    found = checked(recipe, "data.dev=[nowhere.jsonl]", f"data.test=[{tmp_path}]", "model.weights=nowhere")
    assert [trouble.split()[0] for trouble in found.troubles] == ["data.dev:", "data.test:", "No"]
    assert found.parameters is None
    assert found.plan
    assert not found.can_run


def test_a_task_that_cannot_be_prepared_is_a_trouble(recipe, train):
    edit(train, _2={"text": None})
    found = checked(recipe)
    assert "has no text" in found.troubles[0]
    assert found.example is None and found.plan


@pytest.mark.parametrize(
    ("override", "trouble"),
    [("data.max_seconds=0.2", "training utterances are left out"), ("batches.micro_seconds=1", "does not fit into")],
)
def test_an_epoch_that_cannot_be_planned_is_a_trouble(recipe, override, trouble):
    found = checked(recipe, override)
    assert trouble in found.troubles[0]
    assert found.plan is None and found.parameters
    assert not found.can_run


def test_every_kind_of_bad_row_in_a_manifest_is_found(tmp_path):
    manifest = make_corpus(tmp_path, utterances=9)
    audio = tmp_path / "audio"
    edit(manifest, _1={"id": "00000"}, _2={"text": ""}, _3={"seconds": 60})
    (audio / "00004.wav").unlink()
    (audio / "00005.wav").write_bytes(b"")
    (audio / "00006.wav").write_bytes((audio / "00006.wav").read_bytes()[:3000])
    soundfile.write(audio / "00007.wav", np.array([0.1, np.nan] * 8000), 16_000, subtype="FLOAT")
    found = checked_manifest(manifest)
    assert sorted(reasons(found.bad_rows)) == ["2", "3", "5", "6"]
    assert sorted(reasons(found.bad_audio)) == ["4", "7", "8"]
    assert found.utterances == 5
    assert not found.is_sound


def test_a_clean_manifest_is_sound_and_measured(tmp_path):
    found = checked_manifest(make_corpus(tmp_path, utterances=5))
    assert found.is_sound
    assert found.shortest_seconds <= found.seconds / 5 <= found.longest_seconds
    assert found.name == "manifest.jsonl"


def test_a_manifest_that_cannot_be_opened_is_refused(tmp_path):
    with pytest.raises(DataError, match="is a folder"):
        checked_manifest(tmp_path)


def test_a_stream_is_looked_into_and_one_that_is_not_there_is_told(recipe):
    shard(recipe.parent / "shards/000.tar", ["a", "b"])
    with tarfile.open(recipe.parent / "bad.tar", "w") as archive:
        put(archive, "a.txt", b"no recording")
    stream = ["data.train=[]", "data.stream.window=10"]
    found = checked(recipe, *stream, f"data.stream.shards=[{recipe.parent}/shards]")
    assert found.can_run and [split.rows.name for split in found.splits] == ["dev", "test"]
    short = checked(recipe, *stream, f"data.stream.shards=[{recipe.parent}/shards]", "data.max_seconds=0.2")
    assert "training takes 0.1 to 0.2 s" in short.troubles[0]
    (trouble,) = checked(recipe, *stream, f"data.stream.shards=[{recipe.parent}/bad.tar]").troubles
    assert trouble.endswith("bad.tar: a: no recording in the sample")
    (trouble,) = checked(recipe, *stream, "data.stream.shards=[nowhere]").troubles
    assert "matches no shard" in trouble


def test_a_mix_is_checked_as_it_will_be_trained(recipe):
    more = make_corpus(recipe.parent / "more", utterances=4, seed=9)
    rows = [json.loads(line) for line in more.read_text().splitlines()]
    more.write_text("".join(json.dumps(row | {"id": f"more-{row['id']}"}) + "\n" for row in rows))
    sets = f"data.train=[{recipe.parent / 'train/manifest.jsonl'}, {more}]"
    plain, mixed = checked(recipe, sets), checked(recipe, sets, "data.mix.weights=[1, 1]")
    assert mixed.can_run and mixed.plan.micros > plain.plan.micros


def test_a_score_that_the_task_does_not_have_cannot_decide(recipe):
    found = checked(recipe, "train.keep_best=dev.wre")
    assert not found.can_run and any("dev.wre" in trouble and "dev.wer" in trouble for trouble in found.troubles)


@pytest.mark.parametrize(
    ("override", "trouble"),
    [
        ("adapt={freeze: [encodr]}", "no part 'encodr'"),
        ("adapt={freeze: ['*']}", "no parameter is left to train"),
        ("augment={noise: {folder: /nowhere/at/all}}", "/nowhere/at/all"),
        ("task.normalizer=whisper_english", "whisper_english"),
        ("optimizer.name=bitsandbytes", "attune-speech[bnb]"),
    ],
)
def test_what_training_would_refuse_is_a_trouble(recipe, override, trouble, monkeypatch):
    monkeypatch.setattr(whisper_english, "find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    whisper_english._published_spellings.cache_clear()
    found = checked(recipe, override, "task.learn=written")
    assert not found.can_run and any(trouble in each for each in found.troubles)


def test_no_audio_is_decoded_for_a_task_about_text(recipe, train):
    language_model = "task={name: language_model}", "model={family: lm, size: tiny}", "train.keep_best=dev.perplexity"
    (train.parent / "audio/00003.wav").write_bytes(b"no audio")
    found = checked(recipe, *language_model, decodes=True)
    assert found.can_run and [split.rows.decoded for split in found.splits] == [0, 0, 0]
    found = checked(recipe, *language_model, "augment={gain_db: [-3, 3]}")
    assert found.troubles == ("augment: this task has no audio. Remove it.",)


def test_it_is_told_how_many_weights_learn(recipe):
    found = checked(recipe, "adapt={freeze: [head.projection]}")
    assert 0 < found.parameters.trainable < found.parameters.total


def test_a_stream_for_a_model_with_its_own_tokens_is_tried_on_it(recipe, tmp_path):
    shard(tmp_path / "shards/000.tar", ["a", "b"])
    weights = write_whisper(tmp_path / "whisper", MULTILINGUAL)
    model = [f"model={{family: whisper, weights: {weights}}}", "task={name: transcribe, language: en}"]
    stream = ["data.train=[]", "data.stream.window=10", f"data.stream.shards=[{tmp_path}/shards]", *model]
    found = checked(recipe, *stream)
    assert found.can_run and found.parameters and found.example.reads == "text of a"
    assert found.example.target.startswith("<|startoftranscript|><|en|><|transcribe|>")
    shard(tmp_path / "shards/000.tar", ["a" * 100])
    (trouble,) = checked(recipe, *stream).troubles
    assert "tokens" in trouble and "Whisper takes" in trouble
    assert not checked(recipe, *stream, "data.long_rows=drop").troubles
    nowhere = [*stream, f"model={{family: whisper, weights: {tmp_path}/nowhere}}"]
    assert any("nowhere" in each for each in checked(recipe, *nowhere).troubles)


def test_whisper_cannot_classify_and_what_trimmed_means_is_noted(recipe, tmp_path):
    weights = write_whisper(tmp_path / "whisper", MULTILINGUAL)
    model = f"model={{family: whisper, weights: {weights}, window: trimmed}}"
    found = checked(recipe, model, "task={name: classify, label: text}", "train.keep_best=null")
    (trouble,) = found.troubles
    assert "cannot learn the task 'classify'" in trouble and "model.family to ssl" in trouble
    (note,) = checked(recipe, model, "task={name: transcribe, language: en}").notes
    assert "model.window=trimmed" in note and "train with model.window=full" in note
    (note,) = checked(recipe, model.replace("trimmed", "full"), "task={name: transcribe, language: en}").notes
    assert note.startswith("model.window=full: audio is padded to 30 s")


def test_a_text_of_dev_that_is_too_long_to_be_learned_is_no_unknown_label(recipe, dev, tmp_path):
    weights = write_whisper(tmp_path / "whisper", MULTILINGUAL)
    edit(dev, _0={"text": "x" * 100})
    found = checked(recipe, f"model={{family: whisper, weights: {weights}}}", "task={name: transcribe, language: en}")
    assert found.can_run and not any(split.unknown for split in found.splits)
