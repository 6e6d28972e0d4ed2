"""Recordings of any length, by pauses or by windows, and doubtful results decoded anew."""

import json
from dataclasses import replace

import numpy as np
import pytest

import attune
from attune import recipe as recipes
from attune.batches.collate import collate
from attune.cli import main
from attune.decoding.search import Search, decode_batch
from attune.errors import ConfigError, DataError, ModelError
from attune.families.whisper.labels import UNKNOWN_LANGUAGE
from attune.loading.language_models import search_of
from attune.site import this_site
from attune.stages.eval_target import open_eval_target
from attune.testing import make_corpus
from attune.testing.data import speak
from attune.types import Hypothesis, Utterance
from attune.world import World

from tiny import batch_of
from tiny import write_recipe as write_ctc_recipe
from tiny_whisper import MULTILINGUAL, real, real_data, write_whisper

RECIPE = """\
run: {folder}/run
data: {{train: [{manifest}], dev: [{manifest}]}}
task: {{name: transcribe}}
model: {{family: whisper, weights: {weights}}}
batches: {{micro_utterances: 4}}
optimizer: {{lr: 0.003}}
train: {{steps: 1}}
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    folder = tmp_path_factory.mktemp("transcribe")
    manifest = make_corpus(folder / "corpus", utterances=3)
    write_whisper(folder / "model")
    path = folder / "recipe.yaml"
    path.write_text(RECIPE.format(folder=folder, manifest=manifest, weights=folder / "model"))
    return path


@pytest.fixture(scope="module")
def recordings():
    return [speak(text, seed=1) for text in ("zero one two", "three four five six", "seven")]


def test_doubtful_results_are_drawn_anew_whoever_shares_the_batch(recipe, recordings):
    plain, again = attune.load(recipe, "cpu"), attune.load(recipe, "cpu", fallback=True)
    together = again.transcribe(recordings)
    assert together != plain.transcribe(recordings)  # what has learned nothing is unsure of everything
    assert together == [again.transcribe(each) for each in recordings]


def test_silence_has_no_words_whatever_a_model_makes_up_for_it(recipe, recordings):
    model, silence = attune.load(recipe, "cpu"), np.zeros(16_000 * 2, np.float32)
    assert model.transcribe([silence, recordings[0]]) == ["", model.transcribe(recordings[0])]
    assert model.transcribe(silence + np.float32(0.001)) != ""  # too soft a noise to be sure of


def test_what_is_drawn_is_a_function_of_the_id(recipe, recordings):
    model = attune.load(recipe, "cpu")
    built = model.loaded.task_model
    ids = ("a", "b", "a")
    prompt = built.codec.prompt(Utterance("", 1.0))
    batch = batch_of([(name, recordings[0], prompt) for name in ids])
    first, second, third = decode_batch(built, batch, Search(fallback=True))
    assert first == third != second


def test_a_beam_compares_hypotheses_as_the_recipe_says(recipe):
    built, site, world = attune.load(recipe, "cpu").loaded.task_model, this_site(device="cpu"), World.alone()

    def searched(config):  # with room for phrases, which any utterance may bring
        return replace(search_of(config, built, site, world), phrases=None)

    loaded = recipes.load(recipe, ["decode.search=beam", "decode.beam=3", "decode.length_power=0.6"]).recipe
    assert searched(loaded.decode) == Search("beam", 3, 0.6)
    with_final = recipes.load(recipe, ["decode.final={search: beam, length_power: 0, fallback: true}"]).recipe
    assert searched(with_final.decode.final) == Search("beam", 8, 0.0, fallback=True)
    assert searched(with_final.decode) == Search()
    left_open = recipes.load(recipe, ["decode.search=beam"]).recipe
    assert searched(left_open.decode) == Search("beam", 8, 0.4, length_offset=5.0)


def test_window_after_window_says_when_and_covers_the_recording(recipe, recordings):
    model = attune.load(recipe, "cpu", chunking="timestamps")
    audio = np.concatenate([recordings[0]] * 30)[: 40 * 16_000]
    segments = model.segments(audio)
    assert segments and all(0 <= each.start < each.end <= 40 for each in segments)
    assert max(each.start for each in segments) >= 20  # the second window was read too
    together = model.transcribe([audio, recordings[1]])
    assert together == [model.transcribe(audio), model.transcribe(recordings[1])]


def test_what_windows_cannot_do_is_told(recipe, recordings, capsys):
    model = attune.load(recipe, "cpu", chunking="timestamps")
    assert all(segment.text == model.loaded.task_model.codec.read(Hypothesis(segment.tokens, 0.0))
               for segment in model.segments(recordings[0]))  # fmt: skip
    with pytest.raises(DataError, match="one recording"):
        model.segments(recordings)
    with pytest.raises(DataError, match="nbest does not work with"):
        model.transcribe_detailed(recordings, nbest=2)
    for wrong in (-1, 2.5, "2"):
        with pytest.raises(DataError, match="a number of texts"):
            attune.load(recipe, "cpu").transcribe_detailed(recordings, nbest=wrong)
    assert main(["transcribe", str(recipe), "x.wav", "--json", "--nbest", "2", "--chunking", "timestamps"]) == 2
    assert "--chunking timestamps" in capsys.readouterr().err


def test_what_is_spoken_can_be_told(tmp_path, recipe, recordings):
    weights = write_whisper(tmp_path / "several", MULTILINGUAL)
    changed = tmp_path / "recipe.yaml"
    changed.write_text(recipe.read_text().replace(str(recipe.parent / "model"), str(weights)))
    told = attune.load(changed, "cpu", language="be").loaded.task_model
    open_ = attune.load(changed, "cpu").loaded.task_model
    utterance = Utterance("a", 1.0)
    assert told.codec.describe(told.codec.prompt(utterance)).startswith("<|startoftranscript|><|be|>")
    assert -1 in open_.codec.prompt(utterance)
    with pytest.raises(ConfigError, match="has no language 'xx'"):
        attune.load(changed, "cpu", language="xx")


@pytest.mark.parametrize("long", ["vad", "timestamps"])
def test_the_language_of_a_long_recording_is_detected_once(tmp_path, recipe, monkeypatch, long):
    weights = write_whisper(tmp_path / "several", MULTILINGUAL)
    path = tmp_path / "several.yaml"
    path.write_text(RECIPE.format(folder=tmp_path, manifest=recipe.parent / "corpus/manifest.jsonl", weights=weights))
    model = attune.load(path, "cpu", chunking=long)
    prompted = []
    monkeypatch.setattr(
        "attune.recognizer.collate", lambda rows: prompted.extend(row.target[1] for row in rows) or collate(rows)
    )
    noise = np.random.default_rng(0).standard_normal(8 * 16_000).astype(np.float32) * 0.1
    silence = np.zeros(24_000, np.float32)
    parts = [noise, np.sin(np.arange(8 * 16_000) / 9, dtype=np.float32), speak("zero one two", seed=1), noise / 9]
    model.transcribe([np.concatenate([each for part in parts * 2 for each in (part, silence)]), parts[2]])
    assert prompted.count(UNKNOWN_LANGUAGE) == 2  # once for the long recording, once for the short one
    assert len(prompted) > 3 and len(set(prompted)) == 2


def test_a_model_keeps_its_own_weights_whatever_an_override_says(tmp_path, recipe):
    weights = recipe.parent / "model"
    assert main(["import", str(weights), "--to", str(tmp_path / "own")]) == 0
    with pytest.raises(ConfigError, match=r"model\.weights cannot be changed: .* has its own"):
        open_eval_target(str(tmp_path / "own"), ["model.weights=/nowhere"], this_site())


def test_windows_need_a_model_that_says_when(tmp_path, recipe):
    with pytest.raises(ModelError, match="No timestamps here"):
        attune.load(recipe, "cpu").segments(np.zeros(16_000))
    ctc = write_ctc_recipe(tmp_path, utterances=3)
    run = attune.train(ctc, train={"steps": 1, "warmup": 0, "eval_every": None, "keep_best": None}, data={"test": []})
    with pytest.raises(ModelError, match="family 'ssl' does not"):
        attune.load(run.folder, "cpu", chunking="timestamps")
    with pytest.raises(ModelError, match="decode.fallback=True is not used by the greedy search of a CTC model"):
        attune.load(run.folder, "cpu", fallback=True).transcribe(np.ones(16_000))


def test_the_verb_takes_both(recipe, recordings, tmp_path, capsys):
    import soundfile

    soundfile.write(tmp_path / "a.wav", recordings[0], 16_000)
    said = {}
    for words in ((), ("--chunking", "timestamps"), ("--fallback",)):
        assert main(["transcribe", str(recipe), str(tmp_path / "a.wav"), "--device", "cpu", "--json", *words]) == 0
        ((said[words],),) = [json.loads(capsys.readouterr().out)]
    assert len({entry["text"] for entry in said.values()}) == 3


@pytest.mark.recipe
def test_a_minute_of_real_speech_is_read_as_well_in_windows_as_sentence_by_sentence(tmp_path):
    data = real_data("sentences")
    rows = [row for row in json.loads((data / "sentences.json").read_text()) if row["lang"] == "en"]
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE.format(folder=tmp_path, manifest="none.jsonl", weights=real("whisper-tiny.en")))
    audio = [attune.load_audio(data / row["audio"]) for row in rows]
    whole = np.concatenate([np.pad(each, (0, 8000)) for each in audio])
    texts = [row["text"] for row in rows]

    def errors(references, hypotheses):
        return attune.score(references, hypotheses, "english").values["wer"].value

    by_pauses = attune.load(recipe, "cpu")
    found = {
        "one by one": errors(texts, by_pauses.transcribe(audio)),
        "pauses": errors([" ".join(texts)], [by_pauses.transcribe(whole)]),
        "windows": errors([" ".join(texts)], [attune.load(recipe, "cpu", chunking="timestamps").transcribe(whole)]),
    }
    print(len(whole) / 16_000, found)
    assert len(whole) > 60 * 16_000
    assert max(found.values()) <= found["one by one"] + 4
