"""A transducer from a recipe: greedy while it trains, a beam with a language model at the end."""

import json
from dataclasses import replace

import pytest

import attune
from attune.cli import main
from attune.contracts import TaskCodec, TaskModel
from attune.decoding.search import Search
from attune.decoding.settings import SearchConfig
from attune.errors import ConfigError, ModelError
from attune.loading.language_models import search_of
from attune.report.predictions import read_predictions
from attune.site import this_site
from attune.world import World

from tiny import write_recipe
from toy.transducer import HOP, PIECES

pytestmark = pytest.mark.recipe

RECIPE = """\
run: {folder}/run
seed: 17
data: {{train: [{train}], dev: [{dev}], test: [{dev}]}}
task: {{name: transcribe}}
model: {{family: toy.transducer}}
batches: {{micro_utterances: 8, micros_per_step: 1}}
optimizer: {{lr: 0.02}}
train: {{steps: 60, warmup: 2, eval_every: 30, save_every: 30, log_every: 1}}
decode: {{search: greedy, final: {{search: beam, beam: 4, lm: {folder}/lm.arpa, lm_weight: 2.0}}}}
"""


def write_arpa(path, words, pieces=PIECES):
    """A bigram model that has only ever seen these words."""
    pairs = {pair for word in words for pair in zip(f"▁{word}", f"{word}▁", strict=True)}
    unigrams = "".join(f"-3\t{piece}\t-1\n" for piece in pieces)
    bigrams = "".join(f"-0.3\t{first} {second}\n" for first, second in sorted(pairs))
    path.write_text(f"\\data\\\n\n\\1-grams:\n-99\t<s>\n{unigrams}\n\\2-grams:\n{bigrams}\n\\end\\\n")


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    folder = tmp_path_factory.mktemp("transducer")
    write_arpa(folder / "lm.arpa", ["one", "two"])
    return write_recipe(folder, text=RECIPE)


@pytest.fixture(scope="module")
def run(recipe):
    return attune.train(recipe)


def letters(predictions):
    return {letter for prediction in predictions for letter in prediction.value.replace(" ", "")}


def test_the_final_evaluation_searches_with_beam_and_language_model(run, recipe):
    searched = json.loads((run.folder / "scores.json").read_text())["test"]["search"]
    lm = str(recipe.with_name("lm.arpa"))
    assert searched.items() >= {"kind": "beam", "beam": 4, "lm": lm, "lm_weight": 2.0}.items()
    said = letters(read_predictions(run.predictions("test")))
    assert said and said <= set("onetw")


def evaluated(run, out, *words):
    assert main(["evaluate", str(run.folder), "--on", "dev", "--out", str(out), "--workers=0", *words]) == 0
    return read_predictions(out)


def test_overrides_take_the_language_model_away_again(run, tmp_path):
    alone = evaluated(run, tmp_path / "beam.jsonl", "decode.final.lm=null")
    greedy = evaluated(run, tmp_path / "greedy.jsonl", "decode.final.lm=null", "decode.final.search=greedy")
    assert letters(alone) - set("onetw") and letters(greedy) - set("onetw")
    assert [each.value for each in alone] != [each.value for each in greedy]


@pytest.mark.parametrize("words", [(), ("decode.final.lm=null",), ("decode.final=null",)])
def test_batches_do_not_show_in_the_predictions(run, tmp_path, words):
    one = evaluated(run, tmp_path / "one.jsonl", "--batch", "1", *words)
    all_at_once = evaluated(run, tmp_path / "all.jsonl", "--batch", "6", *words)
    assert [each.value for each in one] == [each.value for each in all_at_once]


def test_transcripts_as_json_have_words_with_their_times(run, recipe, capsys):
    audio = recipe.parent / "dev" / "audio" / "00000.wav"
    assert main(["transcribe", str(run.folder), str(audio), "--device", "cpu", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["words"] and " ".join(word["text"] for word in found["words"]).split() == found["text"].split()
    starts = [word["start"] for word in found["words"]]
    seconds = len(attune.load_audio(audio)) / 16_000
    assert starts == sorted(starts) and starts[0] >= 0 and starts[-1] < seconds
    assert all(start == pytest.approx(round(start / (HOP / 16_000)) * HOP / 16_000) for start in starts)
    assert all(0 < word["confidence"] <= 1 for word in found["words"])


def test_transcripts_as_json_have_the_best_few_where_they_are_asked_for(run, recipe, capsys):
    audio = recipe.parent / "dev" / "audio" / "00000.wav"
    words = ["transcribe", str(run.folder), str(audio), "--device", "cpu"]
    assert main([*words, "--json", "--nbest", "3"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    texts = [each["text"] for each in found["nbest"]]
    assert texts[0] == found["text"] and 1 < len(texts) <= 3 and len(set(texts)) == len(texts)
    assert all(each["score"] < 0 for each in found["nbest"])
    assert main([*words, "--nbest", "3"]) == 2 and "--nbest needs --json" in capsys.readouterr().err
    spoken = attune.load(run.folder, device="cpu").transcribe_detailed([audio])[0]
    assert spoken.text == found["text"] and spoken.nbest == ()


def test_a_model_that_is_searched_greedily_is_searched_by_a_beam_for_alternatives(run, recipe):
    greedy = attune.load(run.folder, device="cpu")
    greedy = replace(greedy, search=Search("greedy", beam=2))
    (spoken,) = greedy.transcribe_detailed([recipe.parent / "dev/audio/00000.wav"], nbest=4)
    assert spoken.nbest[0].text == spoken.text and len(spoken.nbest) > 1


def test_a_language_model_that_does_not_fit_is_told_before_training(recipe, tmp_path):
    write_arpa(tmp_path / "other.arpa", ["one"], pieces=["▁stranger"])
    final = {"lm": str(tmp_path / "other.arpa")}
    with pytest.raises(ModelError, match="'▁stranger' are not tokens of the model"):
        attune.train(recipe, run=str(tmp_path / "run"), decode={"final": final})
    assert not list((tmp_path / "run" / "checkpoints").glob("*"))


def test_a_fallback_that_a_transducer_does_not_have_is_told_before_training(recipe, tmp_path):
    for decode in ({"fallback": True}, {"final": {"fallback": True, "lm": None}}):
        with pytest.raises(ModelError, match=r"decode.fallback=True is not used by the \w+ search of a transducer"):
            attune.train(recipe, run=str(tmp_path / "run"), decode=decode)
        assert not list((tmp_path / "run" / "checkpoints").glob("*"))


def test_a_check_tells_of_searches_that_cannot_be_made(recipe, tmp_path, capsys):
    write_arpa(tmp_path / "other.arpa", ["one"], pieces=["▁stranger"])
    words = ["decode.fallback=true", f"decode.final.lm={tmp_path / 'other.arpa'}"]
    assert main(["check", str(recipe), "--no-audio", *words]) == 2
    told = " ".join(capsys.readouterr().out.split())
    assert "decode.fallback=True is not used by the" in told and "'▁stranger' are not tokens of the model" in told
    assert main(["check", str(recipe), "--no-audio"]) == 0


def test_a_language_model_needs_a_beam_and_a_family_that_can_use_it(recipe, tmp_path):
    with pytest.raises(ConfigError, match="decode.final.lm: greedy search does not use it: set search: beam"):
        attune.train(recipe, decode={"final": {"search": "greedy", "lm": "lm.arpa"}})
    with pytest.raises(ConfigError, match="decode.lm: greedy search does not use it: set search: beam"):
        attune.train(recipe, decode={"lm": "lm.arpa"})
    classifier = TaskModel(None, TaskCodec(None), "label")
    config = SearchConfig(search="beam", lm=str(recipe.with_name("lm.arpa")))
    with pytest.raises(ModelError, match="this model has no text tokens"):
        search_of(config, classifier, this_site(device="cpu"), World.alone())


def test_a_ctc_model_over_the_same_tokens_is_searched_with_the_language_model_too(recipe, tmp_path):
    write_arpa(tmp_path / "lm.arpa", ["one", "two"], pieces=["▁", *"efghinorstuvwxz"])
    final = {"search": "beam", "lm": str(tmp_path / "lm.arpa"), "lm_weight": 0.5}
    model = {"family": "ssl"}
    run = attune.train(recipe, run=str(tmp_path / "run"), model=model, decode={"final": final}, train={"steps": 30})
    searched = json.loads((run.folder / "scores.json").read_text())["test"]["search"]
    assert searched.items() >= {"kind": "beam", "lm": str(tmp_path / "lm.arpa"), "lm_weight": 0.5}.items()
    alone = evaluated(run, tmp_path / "alone.jsonl", "decode.final.lm=null")
    assert [each.value for each in read_predictions(run.predictions("test"))] != [each.value for each in alone]
