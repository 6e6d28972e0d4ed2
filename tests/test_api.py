import base64
import gzip
import json
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import soundfile

import attune
from attune.api import dotted
from attune.contracts import Limits, TaskCodec
from attune.errors import ConfigError, DataError, ModelError
from attune.recordings import as_samples
from attune.testing.ranks import run_ranks

from tiny import write_recipe


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    recipe = write_recipe(tmp_path_factory.mktemp("api"))
    settings = {"steps": 60, "eval_every": 60, "save_every": 60}
    return attune.train(recipe, train=settings, batches={"micros_per_step": 1})


@pytest.fixture(scope="module")
def model(run):
    return attune.load(run.folder, device="cpu")


@pytest.fixture(scope="module")
def files(run):
    return sorted((run.folder.parent / "dev/audio").iterdir())


def test_a_trained_run_can_be_loaded_and_evaluated(run):
    evaluation = attune.evaluate(run.folder, on="dev", batch=2)
    assert len(evaluation.predictions) == 6
    assert 0 <= evaluation.scores.values["cer"].value < 100
    assert json.loads((run.folder / "scores.json").read_text())["dev"]["counts"] == dict(evaluation.scores.counts)


def test_the_exported_model_says_what_the_run_says(run, model, files):
    assert attune.load(run.model, device="cpu").transcribe(files) == model.transcribe(files)


def test_one_or_many_paths_or_arrays_give_the_same_text(model, files):
    together = model.transcribe(files)
    assert isinstance(together, list) and len(together) == 6
    assert [model.transcribe(path) for path in files] == together
    assert [model.transcribe(str(path)) for path in files] == together
    assert model.transcribe([attune.load_audio(path) for path in files]) == together


def test_channels_are_averaged_and_any_rate_is_taken(model, files):
    samples = attune.load_audio(files[0])
    assert model.transcribe(np.stack([samples, samples])) == model.transcribe(samples)
    faster = attune.load_audio(files[0], rate=22_050)
    assert isinstance(model.transcribe(faster, rate=22_050), str)


def test_ranks_share_the_work_and_all_get_the_answer(run, model, files):
    def on_ranks(world):
        return attune.load(run.folder, device="cpu").transcribe(files)

    assert run_ranks(2, on_ranks) == [model.transcribe(files)] * 2


@pytest.mark.parametrize("kind", [np.int8, np.int16, np.int32])
def test_integers_are_parts_of_the_loudest(kind):
    loudest = -float(np.iinfo(kind).min)
    found = as_samples((np.array([-1.0, 0.0, 0.5]) * loudest).astype(kind), 16_000)
    assert found.dtype == np.float32 and found.tolist() == [-1.0, 0.0, 0.5]


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.int64, bool, str])
def test_numbers_of_which_nobody_knows_the_loudest_are_refused(kind):
    with pytest.raises(DataError, match=r"floats from -1 to 1, or signed integers of 8, 16 or 32 bits"):
        as_samples(np.ones(4, kind), 16_000)


def test_samples_in_rows_are_not_taken_for_channels():
    stereo = np.stack([np.zeros(100), np.ones(100)])
    assert as_samples(stereo, 16_000).tolist() == [0.5] * 100
    with pytest.raises(DataError, match=r"\(100, 2\) looks like \(samples, channels\): transpose it"):
        as_samples(stereo.T, 16_000)


def test_floats_of_the_size_of_integers_are_refused_with_what_to_do():
    with pytest.raises(DataError, match=r"floats up to 8000 is not a recording.*divide 16-bit samples by 32768"):
        as_samples(np.array([0.0, -8000.0, 300.0]), 16_000)
    assert np.abs(as_samples(np.array([0.0, 1.7]), 16_000)).max() > 1  # clipped, but audio


def test_a_row_of_a_dataset_is_a_recording():
    samples = np.linspace(-0.5, 0.5, 800)
    row = {"path": "a.wav", "array": samples, "sampling_rate": 8000}
    assert np.array_equal(as_samples(row, 16_000), as_samples(samples, 8000))


def test_what_is_not_a_recording_is_told(model, tmp_path):
    with pytest.raises(DataError, match="is not a recording"):
        model.transcribe(np.zeros((2, 2, 2)))
    with pytest.raises(DataError, match="is not a recording"):
        model.transcribe(np.array([np.nan, 0.0]))
    (tmp_path / "text.wav").write_text("hello")
    with pytest.raises(DataError, match=r"text\.wav"):
        model.transcribe(tmp_path / "text.wav")


@pytest.mark.parametrize("rate", [0, -16_000, "8000", None, float("nan"), True])
def test_a_rate_that_is_none_is_refused(model, files, rate):
    with pytest.raises(DataError, match=r"rate: expected samples per second, above 0"):
        model.transcribe(attune.load_audio(files[0]), rate=rate)


def test_one_path_is_not_many_recordings(model, files):
    with pytest.raises(
        DataError, match=r"`transcribe_detailed` takes a list of recordings. For one, pass \[recording\]"
    ):
        model.transcribe_detailed(str(files[0]))
    with pytest.raises(DataError, match="`transcribe_detailed` takes a list"):
        model.transcribe_detailed(files[0])
    with pytest.raises(DataError, match="`transcribe_detailed` takes a list"):
        model.transcribe_detailed(attune.load_audio(files[0]))
    assert [spoken.text for spoken in model.transcribe_detailed(tuple(files[:2]))] == model.transcribe(files[:2])


def test_settings_of_load_that_there_are_not_are_refused(run):
    with pytest.raises(ConfigError, match=r"Unknown chunking 'sequential'. Use vad or timestamps"):
        attune.load(run.folder, device="cpu", chunking="sequential")
    with pytest.raises(ConfigError, match=r"Unknown device 'gpu'. Use auto, cpu or cuda"):
        attune.load(run.folder, device="gpu")
    with pytest.raises(ConfigError, match=r"Unknown precision 'int4'. Use fp32, bf16, fp16 or int8"):
        attune.load(run.folder, device="cpu", precision="int4")


def test_a_trained_run_stands_for_its_folder(run, files):
    assert attune.load(run, device="cpu").transcribe(files[0]) == attune.load(run.folder).transcribe(files[0])
    assert attune.evaluate(run, on="dev", show=False).scores == attune.evaluate(run.folder, "dev", show=False).scores


@pytest.mark.parametrize("audio", [None, b"RIFF", {"path": "a.wav"}, (each for each in "ab")])
def test_what_is_no_recording_is_refused_with_what_one_is(model, audio):
    with pytest.raises(DataError, match=r"is not a recording. Expected a path, a URL, samples .* or a list of these"):
        model.transcribe(audio)


def test_data_without_a_model_is_refused_with_what_to_add(tmp_path):
    (tmp_path / "clips.csv").write_text("audio,text\na.wav,words\n")
    for data in (tmp_path, tmp_path / "clips.csv"):
        with pytest.raises(ConfigError, match=r'is not a recipe. If it is data, name the model to train: model="hf://'):
            attune.train(data)


def test_one_text_is_not_many_to_score():
    with pytest.raises(DataError, match=r"Expected lists of texts. For one, pass \[text\]"):
        attune.score("turn the light off", "turn the light of")


def test_a_transcriber_does_not_classify(model, files):
    with pytest.raises(ModelError, match=r"trained to transcribe, not to classify. Use `predict`, for any task"):
        model.classify(files)


def test_a_folder_that_is_no_model_is_told(tmp_path):
    with pytest.raises(ModelError, match=r"is not a run, a model or a recipe"):
        attune.load(tmp_path)


@pytest.mark.parametrize(
    ("references", "hypotheses", "message"),
    [
        ([None], ["a"], "references: expected texts, found None at 0."),
        (["a", 1], ["a", None], "references: expected texts, found 1 at 1."),
        (["a"], [float("nan")], "hypotheses: expected texts, found nan at 0."),
    ],
)
def test_what_is_no_text_is_not_scored(references, hypotheses, message):
    with pytest.raises(DataError, match=re.escape(message)):
        attune.score(references, hypotheses)


@pytest.mark.parametrize("batch", [0, -3])
def test_an_evaluation_takes_one_utterance_at_least(batch):
    with pytest.raises(ConfigError, match=f"batch: expected a number of utterances, 1 or more; found {batch}"):
        attune.evaluate("runs/any", batch=batch)


def test_scores_need_no_model():
    scores = attune.score(["Hello, world!", "yes"], ["hello world", None], normalizer="basic")
    assert scores.values["wer"].value == 0.0
    assert scores.counts["num_absent_sents"] == 1 and scores.conditions == {"normalizer": "basic"}
    assert list(scores.values) == ["wer", "cer", "ser", "raw_wer", "raw_cer"]
    assert scores.values["raw_wer"].value == 100.0


def test_audio_is_loaded_at_the_rate_one_asks_for(tmp_path):
    soundfile.write(tmp_path / "a.wav", np.zeros((8000, 2)), 8000)
    assert attune.load_audio(tmp_path / "a.wav").shape == (16_000,)


def test_overrides_are_checked_like_a_recipe(run):
    with pytest.raises(ConfigError, match="did you mean 'steps'"):
        attune.train(run.folder / "recipe.yaml", train={"stpes": 3})
    assert dotted({"train": {"steps": 5}, "data.dev": ("a", "b"), "seed": 1}) == [
        "train.steps=5",
        "data.dev=[a, b]",
        "seed=1",
    ]


def test_the_face_is_small_and_quick_to_import():
    assert set(attune.__all__) == {
        "Recognizer", "evaluate", "load", "load_audio", "load_upstream", "new", "score", "train",
    }  # fmt: skip
    code = "import attune, sys; print('torch' in sys.modules); attune.load; print('attune.stages.train' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert said.stdout.split() == ["False", "False"], said.stderr


class Unspaced(TaskCodec):
    def join(self, values, whole):
        return "".join(values)


def test_a_recording_that_is_too_long_to_hear_at_once_is_cut_in_its_pauses(model, files):
    short = [attune.load_audio(path) for path in files]
    pause = np.zeros(16_000, np.float32)
    together = np.concatenate([part for samples in short for part in (samples, pause)])
    hears_little = replace(model.loaded.task_model, limits=Limits(max(map(len, short)) / 16_000 + 0.5))
    patient = replace(model, loaded=replace(model.loaded, task_model=hears_little))
    found = patient.transcribe(together)
    assert len(found.split()) > 1
    unspaced = replace(hears_little, codec=Unspaced(hears_little.codec.task))
    other = replace(model, loaded=replace(model.loaded, task_model=unspaced))
    assert len(other.transcribe(together)) < len(found)
    assert patient.transcribe([short[0], together])[1] == found
    assert patient.transcribe(np.zeros(16_000 * 60, np.float32)) == ""


def test_the_former_name_of_chunking_is_answered_with_the_new_one(run):
    with pytest.raises(ConfigError, match=r'is now load\(chunking="timestamps"\)'):
        attune.load(run.folder, device="cpu", long="windows")


def test_a_run_and_an_evaluation_print_as_short_tables(run):
    text = repr(run)
    assert text.startswith(f"Run {run.folder}: done, best dev.wer") and "\nwer " in text and len(text.splitlines()) < 10
    assert run._repr_html_().count("<tr>") == len(text.splitlines()) - 1
    evaluation = attune.evaluate(run.folder, on="dev", show=False)
    assert repr(evaluation).startswith("dev: 6 utterances, greedy search\n") and "Prediction" not in repr(evaluation)
    assert "<table>" in evaluation._repr_html_()
    assert repr(type(run)(run.folder / "nowhere")) == f"Run {run.folder / 'nowhere'}: not started"


def test_the_report_that_training_writes_is_of_a_finished_run(run):
    page = (run.folder / "report.html").read_text(encoding="utf-8")
    data = gzip.decompress(base64.b64decode(re.search(r'id="data">([^<]*)<', page)[1]))
    assert [each["state"] for each in json.loads(data)["runs"]] == ["done"]


def test_the_history_of_a_run_has_a_row_for_each_logged_step(run):
    rows = run.history()
    assert [row["step"] for row in rows] == list(range(1, 61))
    assert all(row["loss"] > 0 and row["lr"] >= 0 for row in rows)
    assert [row["step"] for row in rows if "dev.wer" in row] == [60]


def test_training_shows_what_the_command_line_shows_unless_it_is_not_to(run, capsys):
    again = {"train": {"steps": 60, "eval_every": 60, "save_every": 60}, "batches": {"micros_per_step": 1}}
    attune.train(run.folder.parent / "recipe.yaml", **again)
    assert "nothing left to train" in capsys.readouterr().out
    assert attune.train(run.folder, show=False) == run  # a run stands for its recipe
    assert capsys.readouterr().out == ""


def test_the_package_lists_what_it_offers():
    assert {"evaluate", "load", "load_audio", "new", "score", "train"} <= set(dir(attune))


def test_an_array_too_short_to_be_resampled_is_refused():
    with pytest.raises(DataError, match="at 48000 Hz is too short"):
        as_samples(np.zeros(1, np.float32), 48_000)
