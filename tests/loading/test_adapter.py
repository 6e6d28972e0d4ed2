"""LoRA adapters out to peft and in from it, with the real peft and transformers."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from attune.cli import main
from attune.errors import ModelError, SourceError
from attune.loading.adapter import base_of, export_adapter, read_adapter
from attune.site import this_site

from tiny import write_recipe
from tiny_whisper import write_whisper

RECIPE = """\
run: {folder}/run
data: {{train: [{train}], dev: [{dev}]}}
task: {{name: transcribe}}
model: {{family: whisper, weights: {folder}/base, window: full}}
adapt: {{method: lora, rank: 4, alpha: 6, dropout: 0.1}}
batches: {{micro_utterances: 2}}
optimizer: {{lr: 0.05}}
train: {{steps: 2}}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A Whisper that was adapted, its base beside it."""
    folder = tmp_path_factory.mktemp("adapted")
    write_whisper(folder / "base")
    recipe = write_recipe(folder, utterances=2, text=RECIPE)
    assert main(["train", str(recipe), "--device=cpu", "--workers=0"]) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def adapter(run):
    to = run.parent / "adapter"
    assert main(["export", str(run), "--adapter", "--to", str(to)]) == 0
    return to


def base_model(run):
    transformers = pytest.importorskip("transformers")
    return transformers.WhisperForConditionalGeneration.from_pretrained(run.parent / "base", dtype=torch.float32)


def logits(model):
    torch.manual_seed(0)
    features, tokens = torch.randn(1, 80, 3000), torch.tensor([[257, 5, 7, 9]])
    with torch.inference_mode():
        return model.eval()(input_features=features, decoder_input_ids=tokens).logits


def test_peft_loads_an_exported_adapter_onto_the_base(run, adapter):
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    plain = logits(base_model(run))
    adapted = logits(peft.PeftModel.from_pretrained(base_model(run), adapter))
    merged = logits(transformers.WhisperForConditionalGeneration.from_pretrained(run / "model", dtype=torch.float32))
    assert (adapted - plain).abs().max() > 1e-2
    assert torch.allclose(adapted, merged, atol=1e-4)
    config = json.loads((adapter / "adapter_config.json").read_text())
    assert config["target_modules"] == ["q_proj", "v_proj"] and config["base_model_name_or_path"].endswith("base")


def test_an_adapter_of_pefts_is_imported_onto_its_base(run, tmp_path):
    peft = pytest.importorskip("peft")
    torch.manual_seed(1)
    config = peft.LoraConfig(
        r=3, lora_alpha=5, target_modules=["k_proj", "fc1"], init_lora_weights=False, use_rslora=True
    )
    theirs = peft.get_peft_model(base_model(run), config)
    theirs.save_pretrained(tmp_path / "adapter")
    assert main(["import", str(tmp_path / "adapter"), "--to", str(tmp_path / "own")]) == 0
    own, expected = load_file(tmp_path / "own/model.safetensors"), theirs.merge_and_unload().state_dict()
    assert own.keys() <= expected.keys()
    assert all(torch.allclose(tensor, expected[name], atol=1e-5) for name, tensor in own.items())


def test_an_adapter_is_weights_for_a_recipe_and_comes_back_as_it_was(run, adapter, tmp_path, capsys):
    assert main(["import", str(adapter), "--to", str(tmp_path / "own"), "--base", str(run.parent / "base")]) == 0
    own, merged = load_file(tmp_path / "own/model.safetensors"), load_file(run / "model/model.safetensors")
    assert all(torch.allclose(own[name], merged[name], atol=1e-6) for name in merged)
    recipe, manifest = run.parent / "recipe.yaml", run.parent / "dev/manifest.jsonl"
    words = ["--on", str(manifest), "--json", "--workers=0", "--device=cpu"]
    plain = ["adapt.method=full", "adapt.rank=16", "adapt.alpha=32", "adapt.dropout=0"]
    capsys.readouterr()
    assert main(["evaluate", str(recipe), f"model.weights={adapter}", *plain, *words]) == 0
    from_adapter = json.loads(capsys.readouterr().out)
    assert main(["evaluate", str(run / "model"), *words]) == 0
    assert from_adapter["scores"] == json.loads(capsys.readouterr().out)["scores"]


def test_what_has_no_lora_weights_is_refused(run, tmp_path):
    with pytest.raises(ModelError, match="has no LoRA weights"):
        export_adapter(str(run / "model"), tmp_path / "x", this_site())
    assert not (tmp_path / "x").exists()


def changed(adapter, folder, config=None, tensors=None):
    folder.mkdir()
    settings = json.loads((adapter / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps({**settings, **(config or {})}))
    save_file(
        {**load_file(adapter / "adapter_model.safetensors"), **(tensors or {})}, folder / "adapter_model.safetensors"
    )
    return folder


@pytest.mark.parametrize(
    ("config", "tensors", "told"),
    [
        ({"peft_type": "IA3"}, {}, r"not plain LoRA \(peft_type='IA3'\)"),
        ({"use_dora": True}, {}, r"not plain LoRA \(use_dora=True\)"),
        ({"r": "many"}, {}, "r and lora_alpha must be numbers"),
        ({}, {"base_model.model.proj_out.weight": torch.zeros(2, 2)}, "more than LoRA of linear layers"),
        ({}, {"base_model.model.x.lora_A.weight": torch.zeros(2, 2)}, "more than LoRA of linear layers"),
    ],
)
def test_what_is_more_than_lora_is_refused_by_name(adapter, tmp_path, config, tensors, told):
    with pytest.raises(ModelError, match=told):
        read_adapter(changed(adapter, tmp_path / "x", config, tensors))


def test_the_base_that_an_export_names_is_found_again_also_in_the_package(adapter, tmp_path):
    named = changed(adapter, tmp_path / "x", {"base_model_name_or_path": "attune://demo/model"})
    assert (base_of(named, this_site()) / "model.safetensors").is_file()


def test_a_base_that_cannot_be_found_or_does_not_fit_is_told(run, adapter, tmp_path, capsys):
    with pytest.raises(SourceError, match="Add --base MODEL"):
        base_of(changed(adapter, tmp_path / "x", {"base_model_name_or_path": "/no/where/at/all"}), this_site())
    write_whisper(tmp_path / "wide", d_model=32)
    assert main(["import", str(adapter), "--to", str(tmp_path / "own"), "--base", str(tmp_path / "wide")]) == 2
    assert "is for another model: it adapts" in capsys.readouterr().err
    assert main(["import", str(run.parent / "base"), "--to", str(tmp_path / "own"), "--base", "x"]) == 2
    assert "is not a LoRA adapter" in capsys.readouterr().err
