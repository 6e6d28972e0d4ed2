"""Models out and in again, through a small hub and an S3 server on this machine."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace

import markdown
import pytest

import attune
from attune.cli import main
from attune.errors import ModelError, SourceError
from attune.files import folder_bytes, sha256
from attune.publishing.publish import export_model, make_bundle, pull, push_model
from attune.site import Site
from attune.sources import Cache, locate

from servers.hub import Hub, serve_hub
from servers.s3 import KEY, SECRET, moto
from tiny import write_recipe
from tiny_whisper import write_whisper

pytestmark = pytest.mark.recipe

WHISPER = """\
run: {folder}/run
data: {{train: [{train}], test: [{dev}]}}
task: {{name: transcribe, language: en, normalizer: basic}}
model: {{family: whisper, weights: {folder}/model, window: trimmed}}
batches: {{micro_utterances: 4}}
optimizer: {{lr: 0.003}}
train: {{steps: 1, save_every: 1}}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    recipe = write_recipe(tmp_path_factory.mktemp("trained"), utterances=12)
    return attune.train(recipe, train={"steps": 4, "warmup": 1, "eval_every": 2, "save_every": 2})


@pytest.fixture
def site(tmp_path):
    return Site(Cache(tmp_path / "cache"), workers=0, device="cpu")


@pytest.fixture
def hub(monkeypatch):
    hub = Hub()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with serve_hub(hub) as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
        yield hub


def contents(folder):
    return {path.relative_to(folder).as_posix(): sha256(path) for path in folder.rglob("*") if path.is_file()}


def predictions(source, out):
    assert main(["evaluate", str(source), "--on", "dev", "--out", str(out), "--workers", "0"]) == 0
    return out.read_text()


def test_an_exported_model_says_what_the_run_says(run, site, tmp_path):
    export_model(str(run.folder), tmp_path / "model", site)
    (tmp_path / "model/README.md").unlink()
    assert contents(tmp_path / "model") == contents(run.model)
    export_model(str(tmp_path / "model"), tmp_path / "again", site)
    assert contents(tmp_path / "again") == contents(run.model)


def test_an_export_has_the_card_that_a_push_would_have_but_not_that_of_another_checkpoint(run, site, tmp_path):
    export_model(str(run.folder), tmp_path / "best", site)
    card = (tmp_path / "best/README.md").read_text()
    assert card.startswith("---\nlibrary_name: ") and "# best" in card and "## Scores" in card
    export_model(f"{run.folder}@last", tmp_path / "last", site)
    assert not (tmp_path / "last/README.md").exists()


def test_an_export_never_replaces_what_is_no_model(run, site, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/chapter.tex").touch()
    with pytest.raises(ModelError, match="already exists and is not an attune model"):
        export_model(str(run.folder), tmp_path / "thesis", site)
    assert (tmp_path / "thesis/chapter.tex").exists()


def test_a_model_that_cannot_be_a_nemo_file_is_told(run, site, tmp_path):
    with pytest.raises(ModelError, match="Only transducers"):
        export_model(str(run.folder), tmp_path / "x.nemo", site)
    assert not any(tmp_path.iterdir())


def test_what_is_pushed_to_the_hub_is_pulled_byte_by_byte_and_can_be_trained_from(run, hub, site, tmp_path):
    make_bundle(run.folder, tmp_path / "bundle", "hf://team/digits", site)
    assert push_model(str(run.folder), "hf://team/digits", site).endswith("/team/digits")
    pulled = pull("hf://team/digits", tmp_path / "pulled", site)
    assert contents(pulled) == contents(tmp_path / "bundle")
    assert {"README.md", "scores.json", "model.safetensors", "recipe.yaml"} <= contents(pulled).keys()
    assert {f"training/{name}" for name in ("recipe.yaml", "log.jsonl", "environment.json", "sources.lock.json")} <= (
        contents(pulled).keys()
    )
    assert predictions(pulled, tmp_path / "theirs.jsonl") == predictions(run.folder, tmp_path / "ours.jsonl")
    more = attune.train(run.folder / "recipe.yaml", run=str(tmp_path / "more"), model={"weights": "hf://team/digits"})
    lock = json.loads((more.folder / "sources.lock.json").read_text())
    assert [each["source"] for each in lock["sources"] if each["revision"]] == ["hf://team/digits"]


def test_what_is_pushed_to_s3_is_pulled_byte_by_byte(run, site, tmp_path, monkeypatch):
    import boto3

    with moto() as url:
        for name, value in {"ACCESS_KEY_ID": KEY, "SECRET_ACCESS_KEY": SECRET, "ENDPOINT_URL": url}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        boto3.client("s3", region_name="us-east-1").create_bucket(Bucket="models")
        make_bundle(run.folder, tmp_path / "bundle", "s3://models/digits/", site)
        seen = []
        push_model(str(run.folder), "s3://models/digits/", replace(site, cache=replace(site.cache, watch=seen.append)))
        last = {each.verb: each for each in seen}
        assert last["uploading"].done == last["uploading"].total == folder_bytes(tmp_path / "bundle")
        assert last["writing"].done == last["writing"].total > 0
        pulled = pull("s3://models/digits/", tmp_path / "pulled", site)
        assert contents(pulled) == contents(tmp_path / "bundle")


def test_a_pulled_folder_is_pushed_as_it_is(run, hub, site, tmp_path):
    push_model(str(run.folder), "hf://team/digits", site)
    pulled = pull("hf://team/digits", tmp_path / "pulled", site)
    push_model(str(pulled), "hf://team/copy", site)
    assert contents(locate("hf://team/copy", site.cache)) == contents(pulled)


@pytest.mark.parametrize("address", ["s3://KEY:5ecret@b/x", "https://h/x?secret_key=5ecret", "https://h/x?k=5ecret"])
def test_nothing_that_is_pushed_opens_an_address(run, hub, site, tmp_path, address):
    copy = tmp_path / "copy"
    shutil.copytree(run.folder, copy)
    for name in ("sources.lock.json", "command.txt"):
        text = (copy / name).read_text()
        (copy / name).write_text(text.replace("attune ", f"attune x={address} ").replace("manifest.jsonl", address))
    bundle = tmp_path / "bundle"
    make_bundle(copy, bundle, "hf://me:5ecret@team/digits", site)
    recipe = bundle / "recipe.yaml"
    recipe.write_text(re.sub(r"/[^ ,]*manifest.jsonl", f"'{address}'", recipe.read_text()))
    assert "5ecret" in recipe.read_text()
    push_model(str(bundle), "hf://team/digits", site)
    for folder in (bundle, locate("hf://team/digits", site.cache)):
        found = [path.name for path in folder.rglob("*") if path.is_file() and b"5ecret" in path.read_bytes()]
        assert found == (["recipe.yaml"] if folder == bundle else [])


def test_the_card_renders_and_the_hub_understands_its_head(run, hub, site, tmp_path):
    from huggingface_hub import ModelCard

    make_bundle(run.folder, tmp_path / "bundle", "hf://team/digits", site)
    text = (tmp_path / "bundle/README.md").read_text()
    card = ModelCard(text)
    assert card.data.pipeline_tag == "automatic-speech-recognition"
    scores = json.loads((run.folder / "scores.json").read_text())["test"]["scores"]
    assert {each.metric_type: each.metric_value for each in card.data.eval_results} == {
        name: round(score["value"], 4) for name, score in scores.items() if not name.startswith("raw_")
    }
    html = markdown.markdown(card.text, extensions=["tables", "fenced_code"])
    cells = re.findall(r"<td>(.*?)</td>", html)
    wer = scores["wer"]
    assert f"{wer['value']:.2f} %" in cells
    assert f"{wer['low']:.2f} – {wer['high']:.2f}" in cells
    for heading in ("Scores", "Data", "Training", "Hardware and software", "How to reproduce it", "How to use it"):
        assert f"<h2>{heading}</h2>" in html
    assert "attune train training/recipe.yaml" in html
    assert "|" not in re.sub(r"<code.*?</code>", "", html, flags=re.DOTALL)  # no table was left as text


def test_the_recipe_in_the_bundle_makes_the_model_again(run, site, tmp_path):
    make_bundle(run.folder, tmp_path / "bundle", "hf://team/digits", site)
    again = attune.train(tmp_path / "bundle/training/recipe.yaml", run=str(tmp_path / "again"))
    assert sha256(again.model / "model.safetensors") == sha256(run.model / "model.safetensors")


def test_nothing_is_pulled_over_what_is_there(run, site, tmp_path):
    (tmp_path / "mine").mkdir()
    with pytest.raises(SourceError, match="already exists"):
        pull(str(run.folder), tmp_path / "mine", site)


def test_a_whisper_goes_out_and_is_trained_on_from_there(hub, tmp_path, monkeypatch):
    monkeypatch.setenv("ATTUNE_CACHE", str(tmp_path / "cache"))
    write_whisper(tmp_path / "model")
    recipe = write_recipe(tmp_path, utterances=4, text=WHISPER)
    first = attune.train(recipe)
    assert main(["push", str(first.folder), "hf://team/small"]) == 0
    second = attune.train(recipe, run=str(tmp_path / "second"), model={"weights": "hf://team/small"})
    assert (second.model / "config.json").is_file()
    card = hub.repos["models/team/small"].commits[hub.repos["models/team/small"].branches["main"]]["README.md"]
    assert b"library_name: transformers" in card.content
    assert b"| `model.window` | trimmed |" in card.content
    assert b"transformers pads to 30 s, which this model was not trained for" in card.content


def test_the_verbs(run, hub, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ATTUNE_CACHE", str(tmp_path / "cache"))
    assert main(["push", str(run.folder), "hf://team/digits"]) == 0
    assert "model.weights=hf://team/digits" in capsys.readouterr().out
    assert main(["pull", "hf://team/digits", "--to", str(tmp_path / "pulled")]) == 0
    assert contents(tmp_path / "pulled")["model.safetensors"] == sha256(run.model / "model.safetensors")
    assert main(["export", str(tmp_path / "pulled"), "--to", str(tmp_path / "exported")]) == 0
    assert contents(tmp_path / "exported") == contents(run.model)
    assert main(["push", str(run.folder), "gopher://x/y"]) == 2
    assert "Unknown scheme 'gopher'" in capsys.readouterr().err


def test_a_push_to_a_folder_shows_the_card_before_anyone_else_sees_it(run, tmp_path, capsys):
    folder = tmp_path / "pushed/digits"
    assert main(["push", str(run.folder), str(folder)]) == 0
    assert f"{folder}/README.md" in capsys.readouterr().out
    assert "## Scores" in (folder / "README.md").read_text() and (folder / "training/recipe.yaml").is_file()
    assert main(["push", str(run.folder), str(folder)]) == 2
    assert "already exists" in capsys.readouterr().err
    assert main(["push", str(run.folder), "my-team/digits"]) == 2
    assert "Write ./my-team/digits or hf://my-team/digits" in capsys.readouterr().err


def test_the_files_of_trackers_are_pushed_with_the_model_and_without_secrets(run, site, tmp_path):
    folder = shutil.copytree(run.folder, tmp_path / "run")
    offline = folder / "wandb/offline-run-1"
    offline.mkdir(parents=True)
    (offline / "config.yaml").write_text("weights: https://me:hunter2@models.org/small.pt\n")
    (offline / "run-1.wandb").write_bytes(b"\x00\xff")
    (folder / "wandb/latest-run").symlink_to(offline)
    make_bundle(folder, tmp_path / "bundle", "hf://team/digits", site)
    training = tmp_path / "bundle/training"
    assert contents(training / "tensorboard") == contents(run.folder / "tensorboard") != {}
    assert set(contents(training / "wandb")) == {"offline-run-1/config.yaml", "offline-run-1/run-1.wandb"}
    assert (training / "wandb/offline-run-1/config.yaml").read_text() == "weights: https://models.org/small.pt\n"


def test_who_pushes_a_run_without_scores_is_told_how_to_get_some(run, hub, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ATTUNE_CACHE", str(tmp_path / "cache"))
    unscored = shutil.copytree(run.folder, tmp_path / "run", ignore=shutil.ignore_patterns("scores.json"))
    for folder, is_told in ((run.folder, False), (unscored, True)):
        assert main(["push", str(folder), "hf://team/digits"]) == 0
        assert ("card has no scores" in capsys.readouterr().out) == is_told


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("environment.json", b"{"),
        ("environment.json", b'{"packages": 5}'),
        ("scores.json", b'{"test": null}'),
        ("scores.json", b'{"test": {"scores": {"wer": {"value": "x"}}, "counts": {}, "conditions": {}}}'),
        ("command.txt", b"\xa0"),
        ("log.jsonl", b"\xa0"),
    ],
)
def test_a_damaged_record_of_a_run_is_not_published(run, tmp_path, capsys, name, content):
    shutil.copytree(run.folder, tmp_path / "run")
    (tmp_path / "run" / name).write_bytes(content)
    assert main(["push", str(tmp_path / "run"), f"file://{tmp_path}/pushed"]) == 2
    assert f"{name} is damaged" in capsys.readouterr().err
    assert not (tmp_path / "pushed").exists()
    (tmp_path / "run" / name).unlink()
    assert main(["push", str(tmp_path / "run"), f"file://{tmp_path}/pushed"]) == 0


def test_verbs_do_not_load_torch_for_their_help():
    script = "import sys; from attune.cli import main\ntry: main(['push', '--help'])\nexcept SystemExit: pass\n"
    check = f"{script}\nsys.exit('torch' in sys.modules or 'huggingface_hub' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], capture_output=True, timeout=60).returncode == 0
