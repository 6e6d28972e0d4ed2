"""A language model's weight is chosen on dev, kept with the run, and used from there on; phrases in whole runs."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

import attune
from attune import recipe as recipes
from attune.cli import main
from attune.decoding.search import Search
from attune.errors import DataError
from attune.loading.pretrained import open_pretrained, recipe_to_evaluate
from attune.metrics import Score
from attune.run import TUNED, Run
from attune.scoring.error_rates import WER
from attune.site import this_site
from attune.stages.eval_target import open_eval_target
from attune.stages.train import Request, train
from attune.studies.tune_fusion import FusionPoint, TriedPoint, TunedFusion, _write
from attune.world import World

from processes import start, wait
from servers.s3 import KEY, SECRET, moto
from tiny import write_recipe


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    recipe = write_recipe(tmp_path_factory.mktemp("tuned"))
    held = recipe.parent / "test.jsonl"
    rows = [json.loads(line) for line in (recipe.parent / "dev" / "manifest.jsonl").read_text().splitlines()]
    held.write_text(
        "".join(
            json.dumps({**row, "id": f"t{row['id']}", "audio": str(recipe.parent / "dev" / row["audio"])}) + "\n"
            for row in rows
        )
    )
    settings = [f"data.test=[{held}]", "train.steps=6", "train.eval_every=6"]
    loaded = recipes.load(recipe, settings).recipe
    list(train(loaded, Request(["attune"]), this_site(workers=0), World.alone()))
    return Run(recipe.parent / "run")


@pytest.fixture(scope="module")
def lm(run):
    path = run.folder.parent / "lm.arpa"
    texts = [str(path) for path in (run.folder.parent / "train").glob("*.jsonl")]
    assert main(["lm", *texts, "--order", "3", "--to", str(path), "--tokenizer", str(run.folder), "--on", "dev"]) == 0
    return path


def tune(run, lm, *options):
    words = [f"decode.lm={lm}", "decode.search=beam", "decode.beam=4", "--workers=0", *options]
    return main(["tune-fusion", str(run.folder), *words])


def test_the_best_weight_is_written_and_evaluations_and_exports_use_it(run, lm, tmp_path, capsys):
    assert tune(run, lm, "--weights", "0.2,0.6", "--temperatures", "2", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    tried = [(each["lm_weight"], each["lm_temperature"]) for each in found["tried"]]
    assert tried[:3] == [(0.0, 1.0), (0.2, 1.0), (0.6, 1.0)]
    values = [each["value"] for each in found["tried"]]
    best = found["tried"][values.index(min(values))]
    assert found["best"] == {name: best[name] for name in found["best"]}
    assert found["tried"][0]["difference"]["value"] == 0

    decode = open_pretrained(run.folder).recipe.decode
    assert (decode.search, decode.beam) == ("beam", 4)
    assert (decode.lm, decode.lm_weight) == ((str(lm), best["lm_weight"]) if best["lm_weight"] else (None, 0.3))
    assert main(["evaluate", str(run.folder), "--on", "dev", "--workers=0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["scores"]["wer"]["value"] == best["value"]
    assert main(["export", str(run.folder), "--to", str(tmp_path / "model")]) == 0
    assert open_pretrained(tmp_path / "model").recipe.decode == decode
    assert run.recipe().decode.search == "greedy"  # the run's own recipe is what it was trained with
    greedy = open_eval_target(str(run.folder), ["decode.search=greedy"], this_site()).pretrained.recipe
    assert greedy.decode.search == "greedy" and greedy.decode.lm is None


@pytest.fixture
def copied(run, tmp_path):
    """The run for a single test, which may change it."""
    (tmp_path / "copy").mkdir()
    shutil.copytree(run.folder, tmp_path / "copy" / "run", ignore=shutil.ignore_patterns(TUNED, ".tuning"))
    return Run(tmp_path / "copy" / "run")


def killed_after(points):
    """Called in each rank before it starts: kill -9 as soon as so many settings are kept."""

    def watch(_):
        real, kept = os.replace, []

        def replace(source, target, **more):
            real(source, target, **more)
            kept.extend([target] if ".tuning" in Path(target).parts else [])
            if len(kept) == points:
                os.kill(os.getpid(), signal.SIGKILL)

        os.replace = replace

    return watch


def decoded(capsys):
    """How many settings the last command decoded, and how many it said it had from before."""
    out = capsys.readouterr().out
    before = [line.partition(" of ")[0] for line in out.splitlines() if "decoded before" in line]
    return out.count("decoding dev: utt 6/6"), int(before[0]) if before else 0


GRID = ["--weights", "0.2,0.6", "--temperatures", "2"]


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.recipe)])
def test_a_killed_tuning_goes_on_with_the_settings_that_are_missing_and_ends_in_the_same_bytes(
    run, copied, lm, ranks, capsys
):
    assert tune(copied, lm, *GRID) == 0
    settings, _ = decoded(capsys)
    expected = (copied.folder / TUNED).read_bytes()
    (copied.folder / TUNED).unlink()
    shutil.rmtree(copied.folder / ".tuning")

    words = ["tune-fusion", str(copied.folder), f"decode.lm={lm}", "decode.search=beam", "decode.beam=4"]
    killed = wait(start([*words, "--workers=0", "--device=cpu", *GRID], ranks, killed_after(2)))
    assert killed[0] == -signal.SIGKILL and not (copied.folder / TUNED).exists()
    words = [*words, "--workers=0", "--device=cpu", *GRID]
    if ranks > 1:
        assert wait(start(words, ranks)) == [0] * ranks
    else:
        assert main(words) == 0
        assert decoded(capsys) == (settings - 2, 2)
    assert (copied.folder / TUNED).read_bytes() == expected


def test_more_weights_cost_only_themselves(copied, lm, capsys):
    assert tune(copied, lm, "--weights", "0.2") == 0
    assert decoded(capsys) == (2, 0)
    assert tune(copied, lm, "--weights", "0.2,0.4") == 0
    assert decoded(capsys) == (1, 2)
    first = (copied.folder / TUNED).read_bytes()
    assert tune(copied, lm, "--weights", "0.2,0.4") == 0
    assert decoded(capsys) == (0, 3) and (copied.folder / TUNED).read_bytes() == first


def test_another_language_model_checkpoint_set_or_search_is_tuned_anew(copied, lm, tmp_path, capsys):
    own, manifest = tmp_path / "own.arpa", tmp_path / "dev.jsonl"
    own.write_bytes(lm.read_bytes())
    rows = [json.loads(line) for line in Path(copied.recipe().data.dev[0]).read_text().splitlines()]
    folder = Path(copied.recipe().data.dev[0]).parent
    rows = [{**row, "audio": str(folder / row["audio"])} for row in rows]
    manifest.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    words = ["--weights", "0.2", "--on", str(manifest)]

    def reused(*more):
        assert tune(copied, own, *words, *more) == 0
        return decoded(capsys)

    assert reused() == (2, 0) and reused() == (0, 2)
    own.write_text(own.read_text().replace("\n-", "\n-1", 1))  # the first probability is another
    assert reused() == (2, 0)
    assert reused("decode.beam=5") == (2, 0)
    assert reused("decode.beam=5", f"decode.phrases=[{rows[0]['text'].split()[0]}]") == (2, 0)
    assert reused() == (2, 0)
    rows[0]["text"] = "six"
    manifest.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert reused() == (2, 0)
    best = json.loads((copied.folder / "best.json").read_text())
    (copied.folder / "best.json").write_text(json.dumps({**best, "step": 3}))
    assert reused() == (2, 0)
    assert len(list((copied.folder / ".tuning").iterdir())) == 2  # those of former ones are gone


@pytest.mark.recipe
def test_a_run_in_an_object_store_is_tuned_there(run, lm, tmp_path, monkeypatch, capsys):
    settings = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": "us-east-1"}
    settings |= {"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}
    settings |= {"ATTUNE_CACHE": str(tmp_path / "cache")}
    with moto() as url:
        for name, value in (settings | {"AWS_ENDPOINT_URL": url}).items():
            monkeypatch.setenv(name, value)
        import boto3

        boto3.client("s3").create_bucket(Bucket="speech")
        words = ["train", str(run.folder.parent / "recipe.yaml"), "run=s3://speech/run", "data.test=[]"]
        assert wait(start([*words, "train.steps=6", "train.eval_every=6", "--workers=0"])) == [0]
        words = ["tune-fusion", "s3://speech/run", f"decode.lm={lm}", "decode.search=beam", "--workers=0"]
        assert main([*words, "--weights", "0.2"]) == 0
        assert "written to s3://speech/run/fusion.json" in capsys.readouterr().out
        stored = boto3.client("s3").get_object(Bucket="speech", Key=f"run/{TUNED}")["Body"].read()
        assert [each["lm_weight"] for each in json.loads(stored)["tried"]] == [0, 0.2]
        assert main([*words, "--weights", "0.2,0.4"]) == 0
        assert "2 of 3 settings were decoded before" in capsys.readouterr().out


def test_evaluations_search_as_what_was_tuned_did_and_without_a_language_model_where_none_is_better(tmp_path):
    template = Path(__file__).parents[2] / "recipes" / "template-asr.yaml"
    (tmp_path / "recipe.yaml").write_text(recipes.resolved_yaml(recipes.load(template).recipe))
    assert recipe_to_evaluate(tmp_path / "recipe.yaml", []).decode.final.lm == "runs/template/lm"
    for weight, expected in ((0.0, None), (0.7, "other.arpa")):
        score = Score(WER, 1.0, 0.5, 2.0)
        best = TriedPoint(FusionPoint(weight), score, None)
        search = Search("beam", 4, ctc_weight=0.4, lm="other.arpa")
        _write(Run(tmp_path), TunedFusion("dev", "other.arpa", (best,), best), search)
        final = recipe_to_evaluate(tmp_path / "recipe.yaml", []).decode.final
        assert (final.search, final.beam, final.ctc_weight, final.lm) == ("beam", 4, 0.4, expected)
        assert final.lm_weight == (weight or 0.3)


def test_the_test_set_is_refused_by_whatever_name(run, lm, capsys):
    before = (run.folder / TUNED).read_bytes() if (run.folder / TUNED).exists() else None
    for name in ("test", str(run.folder.parent / "test.jsonl")):
        assert tune(run, lm, "--on", name) == 2
        assert "of its utterances are in data.test" in capsys.readouterr().err
    assert before == ((run.folder / TUNED).read_bytes() if (run.folder / TUNED).exists() else None)


def test_without_a_language_model_or_a_run_there_is_nothing_to_tune(run, capsys):
    assert main(["tune-fusion", str(run.folder), "decode.search=greedy"]) == 2
    assert "No language model to tune" in capsys.readouterr().err
    assert main(["tune-fusion", str(run.model), "decode.search=beam", "decode.lm=x.arpa"]) == 2
    assert "is not a run" in capsys.readouterr().err


def test_what_a_search_does_not_use_is_refused_before_anything_is_decoded(run, lm, tmp_path, capsys):
    text = tmp_path / "words.txt"
    rows = (run.folder.parent / "train" / "manifest.jsonl").read_text().splitlines()
    text.write_text("".join(json.loads(row)["text"] + "\n" for row in rows))
    words = tmp_path / "words.arpa"
    assert main(["lm", str(text), "--order", "2", "--to", str(words)]) == 0
    capsys.readouterr()
    assert tune(run, words, "--temperatures", "2") == 2
    assert tune(run, lm, "--length-powers", "1") == 2
    with pytest.raises(SystemExit):
        tune(run, lm, "--temperatures", "1,0")
    shown = capsys.readouterr()
    assert "--temperatures: expected numbers above 0, found 1,0" in shown.err
    assert "--temperatures does not work with a language model over words" in shown.err
    assert "--length-powers: CTC beam search has no length normalization" in shown.err and not shown.out


def test_phrases_come_from_the_recipe_a_file_or_the_manifest_and_are_scored(run, tmp_path, capsys):
    rows = [json.loads(line) for line in Path(run.recipe().data.dev[0]).read_text().splitlines()]
    word = rows[0]["text"].split()[0]
    (tmp_path / "names.txt").write_text(f"{word.upper()}\n\n", encoding="utf-8-sig")  # as Windows writes it
    settings = ["decode.search=beam", "--workers=0", "--json", "--on", "dev"]
    found = []
    for phrases in (f"decode.phrases=[{word}]", f"decode.phrases=[{tmp_path / 'names.txt'}]"):
        assert main(["evaluate", str(run.folder), phrases, "decode.phrase_bonus=4", *settings]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0]["scores"] == found[1]["scores"] and found[0]["search"]["phrase_bonus"] == 4
    assert {"keyword_recall", "keyword_precision", "keyword_f1"} <= found[0]["scores"].keys()

    folder = Path(run.recipe().data.dev[0]).parent
    own = [{**row, "audio": str(folder / row["audio"]), "phrases": [word]} for row in rows]
    (tmp_path / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in own))
    on = ["--on", str(tmp_path / "dev.jsonl"), "--workers=0", "--json"]
    assert main(["evaluate", str(run.folder), "decode.search=beam", "decode.phrase_bonus=4", *on]) == 0
    column = json.loads(capsys.readouterr().out)
    assert column["scores"] == found[0]["scores"]
    last = {**own[-1], "phrases": [word, "Łódź"]}
    (tmp_path / "unwritable.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*own[:-1], last]))
    assert main(["evaluate", str(run.folder), "decode.search=beam", "--on", str(tmp_path / "unwritable.jsonl")]) == 2
    assert f"unwritable.jsonl:{len(own)}: utterance {last['id']!r} has the phrase 'Łódź'" in capsys.readouterr().err
    assert main(["evaluate", str(run.folder), "decode.search=greedy", *on[:3]]) == 0
    assert "not boosted by a greedy search, set decode.search=beam" in capsys.readouterr().out
    assert main(["evaluate", str(run.folder), f"decode.phrases=[{word}]", "decode.search=greedy", "--on", "dev"]) == 2
    assert "greedy search does not use it: set search: beam" in capsys.readouterr().err


def test_phrases_from_python_are_for_all_recordings_or_for_each(run):
    manifest = Path(run.recipe().data.dev[0])
    rows = [json.loads(line) for line in manifest.read_text().splitlines()][:3]
    audio = [str(manifest.parent / row["audio"]) for row in rows]
    word = rows[0]["text"].split()[0]
    recognizer = attune.load(run.model)
    for_all = recognizer.transcribe(audio, phrases=[word])
    for_each = recognizer.transcribe(audio, phrases=[[word], [], [word]])
    assert (for_each[0], for_each[2]) == (for_all[0], for_all[2])
    assert for_each[1] == recognizer.transcribe(audio[1])
    detailed = recognizer.transcribe_detailed(audio[:1], nbest=3, phrases=[word])[0]
    assert {"acoustic", "phrases"} <= detailed.nbest[0].parts.keys()
    with pytest.raises(DataError, match="expected a list of texts"):
        recognizer.transcribe(audio, phrases=word)
    with pytest.raises(DataError, match="a list for each recording"):
        recognizer.transcribe(audio, phrases=[[word]])
