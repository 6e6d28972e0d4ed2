"""Tasks that are not about text: two plug-ins of one file outside the package, and two of the package's own."""

import json
from dataclasses import dataclass

import numpy as np
import pytest
import soundfile

from attune.cli import main
from attune.contracts import ModelSection
from attune.corpora import open_corpus
from attune.families.ssl import FAMILY as SSL
from attune.families.ssl import SslConfig
from attune.files import sha256
from attune.run import Run
from attune.stages.verify import compared, read_values
from attune.tasks import diarize, verify_speaker
from attune.testing import check_family, check_task, make_corpus
from attune.testing.data import DIGITS, speak
from attune.types import SAMPLE_RATE, Prediction

from processes import kill, start, wait, wait_for_step
from toy import enhance, lm

pytestmark = pytest.mark.recipe

RECIPE = """\
run: {folder}/run
seed: 5
data: {{train: [{folder}/train/manifest.jsonl], dev: [{folder}/dev/manifest.jsonl]}}
task: {task}
model: {{family: {family}}}
batches: {{micro_utterances: 4, micros_per_step: 2}}
optimizer: {{lr: {lr}, weight_decay: 0}}
train: {{steps: 24, eval_every: 6, save_every: 6, keep_best: dev.{metric}, keep_last: 4}}
"""
PARTS = ("model", "optimizer")


@dataclass(frozen=True)
class Case:
    """A plug-in with the data it is for."""

    write: object  # folder, utterances, seed → writes manifest.jsonl
    module: object
    task: str  # in a recipe
    family: str
    metric: str
    lr: float
    perfect: object = None  # a flawless prediction, where it is not the reference
    settings: object = None  # of the task, where they are not the defaults
    is_tuned: bool = False

    def config(self, folder):
        return self.settings or self.module.TASK.Config()

    def builder(self) -> tuple[object, ModelSection]:
        """The family and its settings."""
        return (SSL, SslConfig()) if self.family == "ssl" else (self.module.FAMILY, self.module.Config())


def write_rows(folder, rows):
    (folder / "manifest.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def noisy(folder, utterances, seed):
    """Speech with noise over it, and without."""
    random = np.random.default_rng(seed)
    rows = []
    for number in range(utterances):
        clean = speak(" ".join(random.choice(DIGITS, 2)), seed=seed * 100 + number)
        names = {kind: f"{number}-{kind}.wav" for kind in ("noisy", "clean")}
        soundfile.write(folder / names["clean"], clean, SAMPLE_RATE)
        soundfile.write(folder / names["noisy"], clean + random.normal(0, 0.1, len(clean)), SAMPLE_RATE)
        rows.append({"id": str(number), "audio": names["noisy"], "signals": {"clean": names["clean"]}})
    write_rows(folder, rows)


def conversations(folder, utterances, seed):
    """Two speakers in turn, one with a low and one with a high voice."""
    random = np.random.default_rng(seed)
    rows = []
    for number in range(utterances):
        parts, segments, start = [], [], 0.0
        for turn in range(4):
            words = " ".join(random.choice(DIGITS, 2))
            parts.append(speak(words, seed=number * 10 + turn, pitch=(0.6, 1.6)[turn % 2]))
            end = start + len(parts[-1]) / SAMPLE_RATE
            segments.append({"start": start, "end": end, "speaker": "AB"[turn % 2]})
            start = end
        soundfile.write(folder / f"{number}.wav", np.concatenate(parts), SAMPLE_RATE)
        rows.append({"id": str(number), "audio": f"{number}.wav", "segments": segments})
    write_rows(folder, rows)


def voices(folder, utterances, seed):
    """Several speakers, and which pairs of utterances are to be compared."""
    manifest = make_corpus(folder, utterances=utterances, seed=seed)
    rows = [json.loads(line) for line in manifest.read_text().splitlines()]
    pairs = [(one, other) for place, one in enumerate(rows) for other in rows[place + 1 :]]
    trials = [f"{int(one['speaker'] == other['speaker'])} {one['id']} {other['id']}\n" for one, other in pairs]
    (folder / "trials.txt").write_text("".join(trials))


def texts(folder, utterances, seed):
    """Sentences, without any audio."""
    random = np.random.default_rng(seed)
    write_rows(
        folder,
        [{"id": str(n), "text": " ".join(random.choice(DIGITS, random.integers(1, 6)))} for n in range(utterances)],
    )


def clean_copy(utterance, folder):
    soundfile.write(folder / f"{utterance.id}.wav", enhance.read(utterance.signals["clean"]), SAMPLE_RATE)
    return Prediction(utterance.id, None, str(utterance.signals["clean"]), file=f"{utterance.id}.wav")


def own_direction(utterance, folder):
    vector = np.eye(3)[sorted(["alto", "bass", "soprano"]).index(utterance.speaker)]
    return Prediction(utterance.id, vector.tolist(), utterance.speaker)


def certain(utterance, folder):
    return Prediction(utterance.id, {"log_prob": 0.0, "tokens": len(utterance.text) + 1}, None)


CASES = {
    "enhance": Case(noisy, enhance, "{name: toy.enhance}", "toy.enhance", "si_sdr", 0.003, clean_copy),
    "diarize": Case(
        conversations,
        diarize,
        "{name: diarize, head: {width: 32}}",
        "ssl",
        "der",
        0.02,
        settings=diarize.DiarizeConfig(head=diarize.ActivityHeadConfig(width=32)),
        is_tuned=True,
    ),
    "verify_speaker": Case(
        voices,
        verify_speaker,
        "{{name: verify_speaker, head: {{width: 16, pooled: 24}}, trials: {{dev: {folder}/dev/trials.txt}}}}",
        "ssl",
        "eer",
        0.01,
        own_direction,
        verify_speaker.VerifySpeakerConfig(head=verify_speaker.SpeakerHeadConfig(width=16, pooled=24)),
    ),
    "lm": Case(texts, lm, "{name: toy.lm}", "toy.lm", "perplexity", 0.02, certain),
}


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


@pytest.fixture
def utterances(case, tmp_path):
    case.write(tmp_path, 6, 1)
    return list(open_corpus("train", [tmp_path / "manifest.jsonl"], tmp_path / "index"))


def test_the_task_keeps_its_promises(case, utterances, tmp_path):
    check_task(case.module.TASK, case.config(tmp_path), utterances, case.perfect)


def test_its_model_keeps_the_promises_of_a_family(case, utterances, tmp_path):
    config = case.config(tmp_path)
    case.module.TASK.prepare(config, utterances, tmp_path)
    family, settings = case.builder()
    check_family(family, settings, case.module.TASK(config, tmp_path), utterances[:3])


@pytest.mark.recipe
def test_a_recipe_trains_keeps_the_best_and_is_the_same_at_any_batch_size_on_ranks_and_after_a_kill(
    case, tmp_path, capsys
):
    for split, count, seed in (("train", 24, 1), ("dev", 8, 2)):
        (tmp_path / split).mkdir()
        case.write(tmp_path / split, count, seed)
    task = case.task.format(folder=tmp_path) if "{{" in case.task else case.task
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE.format(folder=tmp_path, task=task, family=case.family, lr=case.lr, metric=case.metric))
    assert main(["check", str(recipe)]) == 0
    assert main(["train", str(recipe), "--workers", "0"]) == 0
    run = Run(tmp_path / "run")
    scores = [
        each[case.metric]
        for each in map(json.loads, (run.folder / "log.jsonl").read_text().splitlines())
        if each["event"] == "scores"
    ]
    metric = case.module.TASK.metrics[0]
    assert metric.is_better(scores[-1], scores[0]) or scores[0] == 0.0
    best = max(scores) if metric.higher_is_better else min(scores)
    assert run.best().value == best
    capsys.readouterr()
    assert main(["evaluate", str(run.folder), "--on", "dev", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["scores"][case.metric]
    assert found["unit"] == metric.unit
    if case.is_tuned:  # by the dev sets, when training was over
        assert not metric.is_better(best, found["value"])
    else:
        assert found["value"] == pytest.approx(best, rel=1e-4)
    assert_same_at_any_batch_size_and_on_ranks(run, tmp_path)
    assert_same_bits_after_a_kill(recipe, tmp_path)


def assert_same_at_any_batch_size_and_on_ranks(run, folder):
    """What `attune verify` compares, in processes that start at once."""
    found = {}
    for name, ranks, words in (("alone", 1, ["--batch=1"]), ("eight", 1, ["--batch=8"]), ("ranks", 2, [])):
        (folder / name).mkdir()
        out = ["--out", str(folder / name / "predictions.jsonl"), "--workers=0", *words]
        assert wait(start(["evaluate", str(run.folder), "--on", "dev", *out], ranks)) == [0] * ranks
        found[name] = read_values(folder / name)
    assert compared("batch", "dev", found["alone"], found["eight"]).holds
    assert compared("ranks", "dev", found["alone"], found["ranks"]).holds


def assert_same_bits_after_a_kill(recipe, folder):
    def words(name):
        changes = "train.steps=4", "train.save_every=1", "train.eval_every=null", "train.keep_best=null"
        return ["train", str(recipe), f"run={folder / name}", *changes, "--workers=0"]

    def ending(name):
        return [sha256(folder / name / "checkpoints/step-000004" / f"{each}.safetensors") for each in PARTS]

    assert wait(start(words("quiet"))) == [0]
    processes = start(words("killed"))
    wait_for_step(folder / "killed", 2)
    kill(processes)
    assert wait(start(words("killed"))) == [0]
    assert ending("killed") == ending("quiet")
