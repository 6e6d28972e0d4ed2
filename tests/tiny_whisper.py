"""A Whisper of a few thousand weights in transformers' format: tokens are bytes, and nothing is fetched."""

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from attune.families.whisper.model import WhisperModel
from attune.families.whisper.shape import read_shape

MULTILINGUAL, ENGLISH_ONLY = 51_865, 1769  # the size alone tells one from the other
LANGUAGES = ("en", "be", "th", "no")
REAL = Path(os.environ.get("ATTUNE_DEV_MODELS", "~/.cache/attune-dev/models")).expanduser()
DIMS = {  # as OpenAI writes them
    "n_mels": 80,
    "n_vocab": 1769,
    "n_audio_ctx": 1500,
    "n_audio_state": 16,
    "n_audio_head": 2,
    "n_audio_layer": 2,
    "n_text_ctx": 48,
    "n_text_state": 16,
    "n_text_head": 2,
    "n_text_layer": 2,
}
OPENAI_NAMES = {
    "encoder.embed_positions.weight": "encoder.positional_embedding",
    "decoder.embed_positions.weight": "decoder.positional_embedding",
    "decoder.embed_tokens.weight": "decoder.token_embedding.weight",
    "encoder.layer_norm.": "encoder.ln_post.",
    "decoder.layer_norm.": "decoder.ln.",
    ".layers.": ".blocks.",
    ".encoder_attn_layer_norm": ".cross_attn_ln",
    ".encoder_attn": ".cross_attn",
    ".self_attn_layer_norm": ".attn_ln",
    ".self_attn": ".attn",
    ".final_layer_norm": ".mlp_ln",
    ".fc1": ".mlp.0",
    ".fc2": ".mlp.2",
    ".q_proj": ".query",
    ".k_proj": ".key",
    ".v_proj": ".value",
    ".out_proj": ".out",
}


def openai_name(name: str) -> str:
    """What OpenAI calls one of the weights."""
    name = name.removeprefix("model.")
    for ours, theirs in OPENAI_NAMES.items():
        name = name.replace(ours, theirs)
    return name


def real(name: str) -> Path:
    """A folder with real weights, or the test is skipped."""
    if not (REAL / name / "model.safetensors").is_file():
        pytest.skip(f"needs the real weights of {name} in {REAL} (or $ATTUNE_DEV_MODELS)")
    return REAL / name


def real_data(name: str) -> Path:
    """A folder with real speech, from $ATTUNE_DEV_DATA or from `shared/data` beside the checkout, or a skip."""
    beside = (parent / "shared/data" for parent in Path(__file__).resolve().parents)
    folders = [Path(os.environ["ATTUNE_DEV_DATA"])] if "ATTUNE_DEV_DATA" in os.environ else beside
    for folder in folders:
        if (folder / name).is_dir():
            return folder / name
    pytest.skip(f"needs the real speech of {name} in $ATTUNE_DEV_DATA")


def write_published_tokenizer(path: Path, vocabulary: int) -> Path:
    """A tokenizer with the numbers of one that OpenAI published, told by how many tokens there are."""
    languages = {51_864: 99, 51_865: 99, 51_866: 100}[vocabulary]
    codes = [*LANGUAGES, "de", *(f"x{number}" for number in range(languages - len(LANGUAGES) - 1))]
    return write_tokenizer(path, tuple(codes), letters=vocabulary - 1501 - languages - 8)


def write_tokenizer(path: Path, languages: tuple[str, ...] = LANGUAGES, letters: int = 256) -> Path:
    """Bytes, and words without a meaning up to so many letters, then Whisper's special tokens in their order."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    alphabet += [f"word {number}" for number in range(letters - len(alphabet))]
    tokenizer = Tokenizer(models.BPE({letter: number for number, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tasks = ("translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps")
    names = ("endoftext", "startoftranscript", *languages, *tasks)
    tokenizer.add_special_tokens([AddedToken(f"<|{name}|>", special=True) for name in names])
    times = [AddedToken(f"<|{step * 0.02:.2f}|>", normalized=False) for step in range(1501)]
    tokenizer.add_tokens(times)
    tokenizer.save(str(path))
    return path


def write_whisper(folder: Path, vocabulary: int = ENGLISH_ONLY, mels: int = 80, **changes: object) -> Path:
    """A folder as transformers writes it, with random weights that are the same each time."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "model_type": "whisper",
        "architectures": ["WhisperForConditionalGeneration"],
        "vocab_size": vocabulary,
        "num_mel_bins": mels,
        "d_model": 16,
        "encoder_layers": 2,
        "encoder_attention_heads": 2,
        "encoder_ffn_dim": 64,
        "decoder_layers": 2,
        "decoder_attention_heads": 2,
        "decoder_ffn_dim": 64,
        "max_source_positions": 1500,
        "max_target_positions": 48,
        "bos_token_id": 256,
        "eos_token_id": 256,
        "pad_token_id": 256,
        "decoder_start_token_id": 257,
        **changes,
    }
    (folder / "config.json").write_text(json.dumps(config))
    write_tokenizer(folder / "tokenizer.json")
    torch.manual_seed(3)
    model = WhisperModel(read_shape(folder / "config.json"), "full", rules=None)
    for weight in model.parameters():
        weight.data *= 4  # livelier than fresh weights: what is said depends on what is heard
    save_file({name: tensor.half() for name, tensor in model.state_dict().items()}, folder / "model.safetensors")
    return folder
