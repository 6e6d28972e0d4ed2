import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from attune.errors import ModelError
from attune.families.whisper.labels import DecoderPrompt, WhisperVocabulary
from attune.families.whisper.openai import generation_config_of
from attune.families.whisper.weights import export_files, import_weights

from tiny_whisper import DIMS, MULTILINGUAL, openai_name, real, write_published_tokenizer, write_whisper


@pytest.fixture
def folder(tmp_path):
    return write_whisper(tmp_path / "model")


@pytest.fixture
def assets(tmp_path):
    (tmp_path / "assets").mkdir()
    return tmp_path / "assets"


def write_config(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


def index_instead(folder, index):
    (folder / "model.safetensors").rename(folder / "part.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def pickle_instead(folder, held):
    (folder / "model.safetensors").unlink()
    torch.save(held, folder / "pytorch_model.bin")


def same(tensors, others):
    return tensors.keys() == others.keys() and all(torch.equal(tensors[name], others[name]) for name in tensors)


def test_a_folder_leaves_its_files_and_widened_weights(folder, assets):
    tensors = import_weights(folder, assets, None)
    assert same(tensors, {name: each.float() for name, each in load_file(folder / "model.safetensors").items()})
    assert {path.name for path in assets.iterdir()} == {
        "config.json",
        "generation_config.json",
        "preprocessor_config.json",
        "tokenizer.json",
    }


def test_every_way_transformers_keeps_weights_gives_the_same(folder, assets):
    expected = import_weights(folder, assets, None)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()

    torch.save(
        {**tensors, "proj_out.weight": tensors["model.decoder.embed_tokens.weight"]}, folder / "pytorch_model.bin"
    )
    assert same(import_weights(folder, assets, None), expected)  # the tied output layer is not kept twice

    (folder / "pytorch_model.bin").unlink()
    names = sorted(tensors)
    shards = {f"model-0000{part}.safetensors": names[part::2] for part in (0, 1)}
    for shard, held in shards.items():
        save_file({name.removeprefix("model."): tensors[name] for name in held}, folder / shard)
    index = {"weight_map": {name: shard for shard, held in shards.items() for name in held}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert same(import_weights(folder, assets, None), expected)


def test_an_openai_checkpoint_gives_what_the_folder_gives(folder, assets, tmp_path):
    expected = import_weights(folder, assets, None)
    files = {path.name: json.loads(path.read_text()) for path in assets.iterdir()}
    state = {openai_name(name): tensor.half() for name, tensor in expected.items()}
    checkpoint = tmp_path / "tiny.pt"
    torch.save({"dims": DIMS, "model_state_dict": state}, checkpoint)
    adopted = tmp_path / "adopted"
    adopted.mkdir()
    assert same(import_weights(checkpoint, adopted, folder / "tokenizer.json"), expected)
    assert json.loads((adopted / "generation_config.json").read_text()) == files["generation_config.json"]
    config = json.loads((adopted / "config.json").read_text())
    assert {key: config[key] for key in files["config.json"]} == files["config.json"]


def test_an_openai_checkpoint_needs_a_tokenizer(folder, assets, tmp_path):
    checkpoint = tmp_path / "tiny.pt"
    torch.save({"dims": DIMS, "model_state_dict": {}}, checkpoint)
    with pytest.raises(ModelError, match="has no tokenizer.*model.tokenizer=PATH in a recipe, --tokenizer"):
        import_weights(checkpoint, assets, None)
    shutil.copy(folder / "tokenizer.json", tmp_path)
    assert import_weights(checkpoint, assets, None) == {}  # found beside it


KINDS = {51_864: "English-only", 51_865: "multilingual", 51_866: "multilingual as of large-v3"}
PAIRS = [(weights, tokenizer) for weights in KINDS for tokenizer in KINDS if weights != tokenizer]


@pytest.mark.parametrize(("weights", "tokenizer"), PAIRS)
def test_a_tokenizer_of_another_kind_of_whisper_is_refused(folder, assets, tmp_path, weights, tokenizer):
    write_config(folder, vocab_size=weights)
    write_published_tokenizer(folder / "tokenizer.json", tokenizer)
    message = f"the tokenizer of another Whisper: it is {KINDS[tokenizer]}, but .* tokens .{KINDS[weights]}.\\."
    with pytest.raises(ModelError, match=message):
        import_weights(folder, assets, None)
    torch.save({"dims": {**DIMS, "n_vocab": weights}, "model_state_dict": {}}, tmp_path / "tiny.pt")
    with pytest.raises(ModelError, match=message):
        import_weights(tmp_path / "tiny.pt", assets, folder / "tokenizer.json")


def test_an_english_tokenizer_does_not_go_with_a_padded_vocabulary(folder, assets):
    write_config(folder, vocab_size=51_872)
    write_published_tokenizer(folder / "tokenizer.json", 51_864)
    with pytest.raises(ModelError, match=r"it is English-only, but .* has 51872 tokens \(multilingual\)\."):
        import_weights(folder, assets, None)


@pytest.mark.parametrize(
    ("weights", "tokenizer"), [*((each, each) for each in KINDS), (51_872, 51_865), (51_872, 51_866)]
)
def test_a_tokenizer_of_the_same_kind_goes_with_a_vocabulary_of_its_size_or_a_padded_one(
    folder, assets, weights, tokenizer
):
    write_config(folder, vocab_size=weights)
    write_published_tokenizer(folder / "tokenizer.json", tokenizer)
    assert import_weights(folder, assets, None)


def test_a_tokenizer_with_more_tokens_than_the_weights_is_refused(folder, assets):
    write_config(folder, vocab_size=1768)
    with pytest.raises(ModelError, match=r"has token ids up to 1768, but .* has 1768 tokens\."):
        import_weights(folder, assets, None)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / "model.safetensors").write_bytes(b"no"), "is not a valid safetensors file"),
        (lambda folder: (folder / "model.safetensors").unlink(), "has no weights"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "neither tokenizer.json nor vocab.json"),
        (
            lambda folder: (folder / "tokenizer.json").rename(folder / "vocab.json"),
            "has an invalid vocab.json .* Copy vocab.json and merges.txt",
        ),
        (lambda folder: (folder / "config.json").write_text('{"model_type": "bert"}'), "expected 'whisper'"),
        (lambda folder: (folder / "config.json").write_text('{"model_type": "whisper"}'), "has no 'vocab_size'"),
        (lambda folder: (folder / "config.json").unlink(), "Cannot read .*config.json"),
        (
            lambda folder: (folder / "config.json").write_text("[]"),
            "config.json is not a JSON object",
        ),
        (lambda folder: (folder / "config.json").write_bytes(b'{"\xff": 1}'), "Cannot read .*config.json"),
        (lambda folder: write_config(folder, d_model=None), "has d_model None; expected a number of at least 1"),
        (lambda folder: write_config(folder, d_model="16"), "has d_model '16'; expected a number of at least 1"),
        (lambda folder: write_config(folder, d_model=2), "has d_model 2; expected an even number of at least 4"),
        (lambda folder: write_config(folder, d_model=17), "has d_model 17; expected an even number of at least 4"),
        (lambda folder: write_config(folder, encoder_attention_heads=0), "has encoder_attention_heads 0; expected"),
        (
            lambda folder: write_config(folder, decoder_attention_heads=3),
            "decoder_attention_heads 3, which do not divide",
        ),
        (lambda folder: write_config(folder, encoder_layers=10**7), "encoder_layers 10000000; expected at most 1,000"),
        (
            lambda folder: write_config(folder, d_model=10**6),
            "describes a model of .* weights; attune reads at most 10,000,000,000",
        ),
        (lambda folder: write_config(folder, d_model=8000), "at least .* weights, but there are .* Is it the config"),
        (lambda folder: (folder / "config.json").write_text("[" * 100_000), "Cannot read .*config.json"),
        (
            lambda folder: pickle_instead(folder, {"a": torch.ones(1).expand(8 << 30)}),
            "'a' claims 34,359,738,368 bytes, but 4 are stored",
        ),
        (lambda folder: pickle_instead(folder, {"a": torch.ones(4).to_sparse()}), "'a' is sparse, quantized"),
        (lambda folder: write_config(folder, dropout="a lot"), "has dropout 'a lot'; expected a number from 0 to 1"),
        (
            lambda folder: (folder / "generation_config.json").write_text("[]"),
            "generation_config.json is not a JSON object",
        ),
        (
            lambda folder: (folder / "generation_config.json").write_text('{"suppress_tokens": "1, 2"}'),
            "generation_config.json has suppress_tokens '1, 2'; expected a list of numbers",
        ),
        (lambda folder: index_instead(folder, {}), "index.json has no `weight_map`"),
        (lambda folder: index_instead(folder, {"weight_map": {"x": 1}}), "index.json has no `weight_map`"),
        (lambda folder: pickle_instead(folder, [torch.ones(2)]), "pytorch_model.bin has a list; expected weights"),
        (lambda folder: pickle_instead(folder, torch.ones(2)), "pytorch_model.bin has a Tensor; expected weights"),
        (lambda folder: pickle_instead(folder, {"steps": 3}), "has more than weights: 'steps' is not a tensor"),
        (
            lambda folder: pickle_instead(folder, {"proj_out.weight": torch.ones(1769, 16)}),
            "has proj_out.weight but no model.decoder.embed_tokens.weight",
        ),
    ],
)
def test_a_spoiled_folder_is_told(folder, assets, spoil, message):
    spoil(folder)
    with pytest.raises(ModelError, match=message):
        import_weights(folder, assets, None)


@pytest.mark.parametrize(
    ("checkpoint", "message"),
    [
        ({"dims": [1, 2], "model_state_dict": {}}, "`dims` must have n_vocab, n_mels"),
        ({"dims": {"n_vocab": 1769}, "model_state_dict": {}}, "`dims` must have n_vocab, n_mels"),
        ({"dims": {**DIMS, "n_audio_state": "16"}, "model_state_dict": {}}, "`dims` must have n_vocab, n_mels"),
        ({"dims": {**DIMS, "n_text_head": 3}, "model_state_dict": {}}, "tiny.pt has decoder_attention_heads 3"),
        ({"dims": DIMS, "model_state_dict": [1]}, "tiny.pt has a list; expected weights"),
        ({"dims": DIMS, "model_state_dict": {"x": 1}}, "has more than weights: 'x' is not a tensor"),
        ([1], "is not an OpenAI Whisper checkpoint"),
    ],
)
def test_a_spoiled_openai_checkpoint_is_told(folder, assets, checkpoint, message):
    torch.save(checkpoint, folder / "tiny.pt")
    with pytest.raises(ModelError, match=message):
        import_weights(folder / "tiny.pt", assets, None)


def test_a_generation_config_without_suppress_lists_suppresses_nothing(folder, assets):
    import_weights(folder, assets, None)
    assert json.loads((assets / "generation_config.json").read_text())["suppress_tokens"]  # none there: attune's own
    (folder / "generation_config.json").write_text('{"max_length": 40}')
    import_weights(folder, assets, None)
    generation = json.loads((assets / "generation_config.json").read_text())
    assert (generation["suppress_tokens"], generation["begin_suppress_tokens"]) == ([], [])
    assert (generation["max_length"], generation["eos_token_id"]) == (40, 256)


def test_numbers_that_are_no_tokens_are_not_suppressed(folder, assets):
    written = {"suppress_tokens": [-1, 5, 1769, 10**12], "begin_suppress_tokens": None}
    (folder / "generation_config.json").write_text(json.dumps(written))
    import_weights(folder, assets, None)
    generation = json.loads((assets / "generation_config.json").read_text())
    assert (generation["suppress_tokens"], generation["begin_suppress_tokens"]) == ([5], [])


def test_an_output_layer_of_its_own_is_refused(folder, assets):
    tensors = load_file(folder / "model.safetensors")
    save_file({**tensors, "proj_out.weight": torch.ones(1769, 16)}, folder / "model.safetensors")
    with pytest.raises(ModelError, match="separate output layer"):
        import_weights(folder, assets, None)


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 151\n"


def test_a_file_that_would_run_code_is_refused(assets, tmp_path):
    torch.save({"dims": print}, tmp_path / "evil.pt")
    with pytest.raises(ModelError, match=r"Cannot read tensors from .*: it contains code .*print") as told:
        import_weights(tmp_path / "evil.pt", assets, None)
    assert "weights_only" not in str(told.value) and "add_safe_globals" not in str(told.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "x.pt is empty. Download it again"),
        (POINTER, "x.pt is a git-lfs pointer, not the file"),
        (b"no weights", "Cannot read tensors from .*: it is damaged"),
        (b"PK\x03\x04 half of it", "Cannot read tensors from "),
        (b"\x80\x02\x8a", "Cannot read tensors from "),
    ],
)
def test_a_file_without_tensors_is_told_without_advice_to_run_it(assets, tmp_path, content, message):
    (tmp_path / "x.pt").write_bytes(content)
    with pytest.raises(ModelError, match=message) as told:
        import_weights(tmp_path / "x.pt", assets, None)
    assert "weights_only" not in str(told.value) and not str(told.value).endswith(": ")


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize(("content", "message"), [(b"", "is empty"), (POINTER, "is a git-lfs pointer")])
def test_a_download_that_went_wrong_is_told(folder, assets, name, content, message):
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(content)
    with pytest.raises(ModelError, match=f"{name} {message}"):
        import_weights(folder, assets, None)


def test_a_damaged_tokenizer_is_named_by_the_users_file(folder, assets, tmp_path):
    torch.save({"dims": DIMS, "model_state_dict": {}}, tmp_path / "tiny.pt")
    for checkpoint, tokenizer in ((folder, folder / "tokenizer.json"), (tmp_path / "tiny.pt", tmp_path / "mine.json")):
        tokenizer.write_text("{")
        with pytest.raises(ModelError, match=f"^{tokenizer} is not a valid tokenizer"):
            import_weights(checkpoint, assets, tokenizer)


def test_an_exported_folder_says_language_and_task_and_float32(assets, tmp_path):
    folder = write_whisper(tmp_path / "many", MULTILINGUAL, forced_decoder_ids=[[1, 2]], torch_dtype="float16")
    import_weights(folder, assets, None)
    out = tmp_path / "out"
    out.mkdir()
    export_files(DecoderPrompt("be", "translate"), assets, out)
    generation = json.loads((out / "generation_config.json").read_text())
    assert (generation["language"], generation["task"]) == ("be", "translate")
    config = json.loads((out / "config.json").read_text())
    assert config["dtype"] == "float32"
    assert not {"forced_decoder_ids", "torch_dtype"} & config.keys()


@pytest.mark.parametrize(("told", "written"), [("sv-SE", "sv"), ("zh-CN", "zh"), ("EN", "en"), (None, None)])
def test_a_language_is_exported_as_transformers_knows_it(assets, tmp_path, told, written):
    import_weights(write_whisper(tmp_path / "many", MULTILINGUAL), assets, None)
    export_files(DecoderPrompt(told), assets, tmp_path)
    assert json.loads((tmp_path / "generation_config.json").read_text())["language"] == written


@pytest.mark.parametrize("name", ["whisper-tiny", "whisper-tiny.en"])
def test_what_is_never_said_is_openais_own_list(name):
    folder = real(name)
    published = json.loads((folder / "generation_config.json").read_text())
    made = generation_config_of(WhisperVocabulary(folder / "tokenizer.json", name == "whisper-tiny"), 448)
    made |= {"return_timestamps": False, "transformers_version": published["transformers_version"]}
    assert {**made, "task": "transcribe"} == {"task": "transcribe", **published}
