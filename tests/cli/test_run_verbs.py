"""train, evaluate and demo as a user meets them."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from attune import score
from attune.cli import main
from attune.launch.doctor import TorchBuild
from attune.text.normalizers import whisper_english

from tiny import write_recipe

SHIPPED = Path(__file__).parents[2] / "src/attune/demo/example"


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    return write_recipe(tmp_path_factory.mktemp("verbs"))


@pytest.fixture
def attune(monkeypatch, capsys):
    """Run a command in this process; returns its exit code, stdout and stderr."""

    def run(*words):
        words = [str(word) for word in words]
        monkeypatch.setattr(sys, "argv", ["attune", *words])
        code = main(words)
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture(scope="module")
def trained(recipe, tmp_path_factory):
    run = tmp_path_factory.mktemp("trained") / "run"
    words = ["train", str(recipe), f"run={run}", "train.steps=6", "train.eval_every=3", "--workers=0"]
    sys.argv, before = ["attune", *words], sys.argv
    try:
        assert main(words) == 0
    finally:
        sys.argv = before
    return run


def test_training_in_a_pipe_prints_whole_lines(attune, recipe, tmp_path):
    settings = ["train.steps=4", "train.warmup=1", "train.eval_every=2", "data.test=[]", "--workers=0"]
    code, out, _ = attune("train", recipe, f"run={tmp_path / 'run'}", *settings)
    assert code == 0 and "\r" not in out
    assert "\nfirst example: " in out and "\n  target: " in out
    assert "24 utterances" in out and "step 4/4" in out and "dev wer" in out and "normalizer: none" in out


@pytest.mark.parametrize(
    "words",
    [
        ["export", "RUN", "--to", "s3://speech/m"],
        ["evaluate", "RUN", "--on", "dev", "--out", "s3://speech/m.jsonl"],
        ["sweep", "RUN", "seed=1,2", "--to", "s3://speech/m"],
        ["ui", "s3://speech"],
    ],
)
def test_an_address_is_never_taken_for_a_local_path(attune, trained, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = attune(*(trained if word == "RUN" else word for word in words))
    assert code == 2 and "s3://speech" in err and "a file or folder of this machine is expected" in err
    assert not list(tmp_path.iterdir())


SMALL_DISK = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=100k tmpfs "$0" && exec "$@"']


@pytest.mark.recipe
@pytest.mark.skipif(subprocess.run([*SMALL_DISK, "/tmp", "true"], check=False).returncode != 0, reason="needs root")
@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["train", "example", "run=DISK/run", "data.train=[ROWS]", "--workers=0"], "Disk full for DISK/run/data/"),
        (["pull", "RUN", "--to", "DISK/run"], "Disk full for DISK/"),
        (["push", "RUN", "DISK/model"], "Cannot write DISK/model: No space left on device. Choose another folder."),
        (["report", "RUN", "--out", "DISK/report.html"], "Disk full for DISK/report.html"),
    ],
)
def test_a_full_disk_is_named_in_one_line(trained, words, named, tmp_path):
    disk, rows = tmp_path / "disk", tmp_path / "rows.jsonl"
    disk.mkdir()
    places = {"DISK": str(disk), "RUN": str(trained), "ROWS": str(rows)}

    def here(text):
        return re.sub("DISK|RUN|ROWS", lambda found: places[found[0]], text)

    shutil.copy(SHIPPED / "noise.ogg", tmp_path)
    row = {"audio": "noise.ogg", "start": 0.0, "seconds": 0.5, "labels": {"class": "1"}}
    rows.write_text("".join(json.dumps({"id": f"row-{number}", **row}) + "\n" for number in range(12_000)))
    command = [*SMALL_DISK, str(disk), sys.executable, "-m", "attune", *map(here, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (1, 2) and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith(here(named)), done.stderr


def test_a_pull_to_a_folder_that_exists_is_refused_before_anything_is_fetched(attune, tmp_path):
    code, _, err = attune("pull", "https://127.0.0.1:9/model", "--to", tmp_path)
    assert code == 2 and f"{tmp_path} already exists" in err


def test_exported_weights_can_be_read_by_others_as_any_new_file(trained, tmp_path):
    (tmp_path / "new").touch()
    files = [trained / "model/model.safetensors", *trained.glob("checkpoints/*/model.safetensors")]
    assert {path.stat().st_mode for path in files} == {(tmp_path / "new").stat().st_mode}


def test_a_finished_run_says_so(attune, recipe, trained):
    words = ["train", recipe, f"run={trained}", "train.steps=6", "train.eval_every=3", "--workers=0"]
    code, out, _ = attune(*words)
    assert code == 0 and f"{trained}: finished, 6 steps\n" in out and "resuming" not in out


def test_a_torch_that_cannot_use_the_gpu_is_a_loud_line(attune, recipe, trained, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    wrong = TorchBuild("2.9", None, "6.4", (), "", has_nvidia=True, has_amd=False, driver=None)
    monkeypatch.setattr("attune.launch.doctor.inspect_torch", lambda: wrong)
    _, _, err = attune("evaluate", trained / "model", "--on", "dev", "--workers=0")
    assert err.startswith("WARNING: running on the CPU. This machine has an NVIDIA GPU, but torch is built for ROCm.")
    assert attune("evaluate", trained / "model", "--on", "dev", "--workers=0", "--device=cpu")[2] == ""
    again = ["train", recipe, f"run={trained}", "train.steps=6", "train.eval_every=3", "--workers=0"]
    assert "WARNING: running on the CPU." in attune(*again)[2]


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a GPU")
def test_a_device_that_is_not_there_names_the_wheel_and_the_doctor(attune, trained):
    code, _, err = attune("evaluate", trained / "model", "--on", "dev", "--device=cuda")
    assert code == 2 and f"torch {torch.__version__} (built for" in err and "attune doctor" in err


def test_what_is_not_required_is_not_called_required(attune, capsys):
    with pytest.raises(SystemExit):
        attune("train")
    assert capsys.readouterr().err.endswith("the following arguments are required: RECIPE|RUN|DATA\n")


def test_training_says_what_it_did_as_json(attune, recipe, tmp_path):
    settings = ["train.steps=3", "train.eval_every=3", "--workers=0", "--json"]
    code, out, err = attune("train", recipe, f"run={tmp_path / 'run'}", *settings)
    answer = json.loads(out)
    assert code == 0 and "starting" in err
    assert set(answer["scores"]) == {"dev", "test"}


def test_evaluation_writes_predictions_that_can_be_scored_again(attune, trained, tmp_path):
    out_file = tmp_path / "predictions.jsonl"
    code, out, _ = attune("evaluate", trained, "--on", "dev", "--out", out_file, "--workers=0", "--json")
    scores = json.loads(out)
    code_again, out_again, _ = attune("score", out_file, "--normalizer=none", "--json")
    assert code == code_again == 0
    assert json.loads(out_again)["counts"] == scores["counts"]
    assert (trained / "predictions/dev.jsonl").read_bytes() == out_file.read_bytes()


def test_alignments_are_of_the_texts_as_they_are_scored(attune, trained, recipe, tmp_path):
    rows = [json.loads(line) for line in (recipe.parent / "dev/manifest.jsonl").read_text().splitlines()]
    shouted = recipe.parent / "dev/shouted.jsonl"
    shouted.write_text("".join(json.dumps({**row, "text": row["text"].upper() + "!"}) + "\n" for row in rows))
    errors = tmp_path / "errors.txt"
    words = ["evaluate", trained / "model", "task.normalizer=basic", "--on", shouted, "--workers=0"]
    code, out, _ = attune(*words, "--alignments", errors, "--json")
    listed = [int(number) for number in re.findall(r"^.*: (\d+) errors? in ", errors.read_text(), re.MULTILINE)]
    counts = json.loads(out)["counts"]
    assert code == 0 and sum(listed) == counts["num_edits"]
    assert "!" not in errors.read_text()


def test_every_set_that_is_asked_for_is_scored(attune, trained, tmp_path):
    code, out, _ = attune("evaluate", trained / "model", "--on", "dev", "--on", "test", "--workers=0")
    assert code == 0 and "dev: 6 utterances" in out and "test: 6 utterances" in out
    assert next(line for line in out.splitlines() if line.startswith("score")).split()[-2:] == ["dev", "test"]
    code, out, _ = attune("evaluate", trained / "model", "--on", "dev", "--on", "test", "--workers=0", "--json")
    assert code == 0 and [each["split"] for each in json.loads(out)] == ["dev", "test"]
    both = ["evaluate", trained / "model", "--on", "dev", "--on", "test", "--out", tmp_path / "out.jsonl"]
    code, _, err = attune(*both)
    assert code == 2 and "--out and --alignments need a single --on" in err


@pytest.mark.parametrize(
    "words", [["evaluate", "{run}", "--out", "x.docx"], ["transcribe", "{run}", "a.wav", "--out", "x.docx"]]
)
def test_a_format_that_is_not_written_is_refused(attune, trained, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = attune(*(word.format(run=trained) for word in words))
    assert code == 2 and ".docx" in err and ".jsonl" in err and not (tmp_path / "x.docx").exists()


def test_one_default_normalizer_everywhere_and_it_is_shown(attune, trained, recipe, tmp_path):
    _, out, _ = attune("evaluate", trained / "model", "--on", "dev", "--out", tmp_path / "out.jsonl", "--workers=0")
    _, scored, _ = attune("score", tmp_path / "out.jsonl")
    named = [line.split() for line in (out + scored).splitlines() if line.startswith("normalizer ")]
    assert [line[:2] for line in named if len(line) == 2] == 2 * [["normalizer", "none"]]
    assert "To ignore them: task.normalizer=basic" in out and "To ignore them: --normalizer basic" in scored
    assert score(["A"], ["a"]).conditions == {"normalizer": "none"}


def test_what_cannot_be_scored_is_not_decoded_first(attune, trained, monkeypatch):
    monkeypatch.setattr(whisper_english, "find_spec", lambda name: None)
    whisper_english._published_spellings.cache_clear()
    code, out, err = attune("evaluate", trained, "--on", "dev", "task.normalizer=whisper_english", "--workers=0")
    assert code == 2 and "whisper-normalizer" in err and "decoding" not in out + err


def test_a_recipe_scores_other_weights_under_its_settings(attune, recipe, trained):
    words = ["evaluate", recipe, f"model.weights={trained}", "decode.search=beam", "--on", "dev", "--workers=0"]
    code, out, _ = attune(*words, "--json")
    assert code == 0 and json.loads(out)["search"] == {
        "kind": "beam",
        "beam": 8,
        "length_power": None,
        "fallback": False,
        "precision": "fp32",
    }


def test_a_manifest_is_scored_by_its_name(attune, trained, recipe, tmp_path):
    manifest = recipe.parent / "dev/manifest.jsonl"
    code, out, _ = attune("evaluate", trained, "--on", manifest, "--workers=0", "--alignments", tmp_path / "errors.txt")
    assert code == 0 and "manifest: 6 utterances, greedy search" in out
    assert "00000" in (tmp_path / "errors.txt").read_text()


def test_another_manifest_never_takes_the_place_of_a_result_that_is_there(attune, trained, recipe, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    before = json.loads((run / "scores.json").read_text())["test"]
    audio = recipe.parent / "dev"
    for folder in ("one/far", "two/far", "one/near"):
        (tmp_path / folder).mkdir(parents=True)
        for name in ("test", "own"):
            (tmp_path / folder / f"{name}.jsonl").write_text((audio / "manifest.jsonl").read_text())
        (tmp_path / folder / "audio").symlink_to(audio / "audio")

    def kept(manifest):
        code, out, _ = attune("evaluate", run, "--on", tmp_path / manifest, "--workers=0")
        place = next(line for line in out.splitlines() if line.startswith("predictions: "))
        assert code == 0 and Path(place.removeprefix("predictions: ")).is_file()
        return Path(place).stem

    assert kept("one/far/test.jsonl") == "far-test" and kept("one/near/test.jsonl") == "near-test"
    assert kept("one/near/own.jsonl") == "own" and kept("one/far/own.jsonl") == "far-own"
    assert kept("two/far/own.jsonl") not in ("own", "far-own") and kept("one/near/own.jsonl") == "own"
    assert json.loads((run / "scores.json").read_text())["test"] == before


def test_an_absent_prediction_is_an_exit_code_of_its_own(attune, trained, recipe, tmp_path):
    rows = (recipe.parent / "dev/manifest.jsonl").read_text().splitlines()
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "bad.wav").write_bytes((recipe.parent / "dev/audio/00000.wav").read_bytes()[:3000])
    bad = {**json.loads(rows[0]), "audio": "bad.wav"}
    good = {**json.loads(rows[1]), "audio": str(recipe.parent / "dev/audio/00001.wav")}
    (folder / "m.jsonl").write_text(json.dumps(bad) + "\n" + json.dumps(good) + "\n")
    code, _, err = attune("evaluate", trained, "--on", folder / "m.jsonl", "--workers=0")
    assert code == 2 and "m.jsonl:1" in err
    code, out, err = attune(
        "evaluate", trained, "data.bad_rows=drop", "--on", folder / "m.jsonl", "--workers=0", "--json"
    )
    assert code == 1 and "bad.wav" in err
    assert json.loads(out)["counts"]["num_absent_sents"] == 1


def test_training_says_what_its_test_set_has_no_prediction_for_and_exits_as_evaluation_does(attune, recipe, tmp_path):
    rows = [json.loads(row) for row in (recipe.parent / "dev/manifest.jsonl").read_text().splitlines()[:3]]
    (tmp_path / "bad.wav").write_bytes((recipe.parent / "dev/audio/00000.wav").read_bytes()[:3000])
    audio = ["bad.wav", *(str(recipe.parent / "dev/audio" / f"0000{number}.wav") for number in (1, 2))]
    lines = [json.dumps({**row, "audio": path}) for row, path in zip(rows, audio, strict=True)]
    (tmp_path / "m.jsonl").write_text("\n".join(lines) + "\n")
    settings = ["train.steps=2", "train.warmup=1", "train.eval_every=2", "data.bad_rows=drop", "--workers=0"]
    split = f"[{tmp_path / 'm.jsonl'}]"
    code, out, _ = attune("train", recipe, f"run={tmp_path / 'run'}", f"data.test={split}", *settings)
    assert code == 1 and "test: 1 of 3 utterances without a prediction" in out and "bad.wav" in out
    assert json.loads((tmp_path / "run/status.json").read_text())["state"] == "done"
    code, out, _ = attune("train", recipe, f"run={tmp_path / 'dev'}", f"data.dev={split}", "data.test=[]", *settings)
    assert code == 0 and "dev: 1 of 3 utterances without a prediction" in out


def test_a_run_that_cannot_be_written_is_told_before_anything_is_decoded(attune, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    shutil.rmtree(tmp_path / "run/predictions")
    (tmp_path / "run/predictions").touch()
    code, out, err = attune("evaluate", tmp_path / "run", "--workers=0")
    assert code == 2 and "Cannot write" in err and f"attune evaluate {tmp_path / 'run/model'}" in err
    assert "decoding" not in out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["evaluate", "nowhere"], "nowhere"),
        (["evaluate", "{run}", "--on", "tset"], "tset"),
        (["train", "nowhere.yaml"], "nowhere.yaml"),
        (["train", "{recipe}", "run={run}", "seed=3"], "seed: 17 → 3"),
        (["evaluate", "{recipe}"], "has no weights to evaluate"),
        (["evaluate", "{run}", "--device", "cuda"], "no usable CUDA device"),
        (["train", "{recipe}", "run={run}-new", "model.weights=nowhere"], "nowhere"),
        (["train", "{recipe}", "run={recipe}"], "Cannot write"),
        (["train", "{recipe}", "run=/proc/nowhere"], "Cannot write"),
        (["evaluate", "{run}", "--out", "/proc/nowhere/predictions.jsonl"], "Cannot write"),
        (["evaluate", "{run}", "--alignments", "{run}"], "Cannot write"),
        (["verify", "{recipe}"], "is not a run: it has no recipe.yaml. Give the folder of a run."),
        (
            ["compare", "{run}/model", "{run}"],
            "is a model, which keeps no scores. Compare prediction files: `attune eval",
        ),
    ],
)
def test_a_mistake_is_a_message_and_exit_2(attune, recipe, trained, words, told):
    code, _, err = attune(*(word.format(run=trained, recipe=recipe) for word in words))
    assert code == 2 and told in err and "Traceback" not in err
