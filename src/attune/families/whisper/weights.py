"""Others' checkpoints in, and out again: folders in transformers' format, and OpenAI's .pt files.

Whatever comes in leaves the same files in `assets` (config, generation config, tokenizer, preprocessor) and the same
names of weights, so nothing after this module knows where a model came from.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attune.errors import ModelError
from attune.families._checkpoints import as_tensors, read_folder, read_pt
from attune.families._json import read_json, write_json
from attune.families.whisper.labels import DecoderPrompt, WhisperVocabulary
from attune.families.whisper.openai import config_of, generation_config_of, renamed, require_same_kind
from attune.families.whisper.shape import WhisperShape, read_shape, require_described, shape_of, suppressed
from attune.text.languages import base_language

CONFIG, GENERATION, PREPROCESSOR = "config.json", "generation_config.json", "preprocessor_config.json"
TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
SUPPRESSED = ("suppress_tokens", "begin_suppress_tokens")
OUTPUT, EMBEDDING = "proj_out.weight", "model.decoder.embed_tokens.weight"


def import_weights(path: Path, assets: Path, tokenizer: Path | None) -> Mapping[str, Tensor]:
    """Write the files to `assets`; the weights come in float32, under the model's own names."""
    tensors = _import_folder(path, assets) if path.is_dir() else _import_pt(path, assets, tokenizer)
    tensors = {
        name if name.startswith(("model.", "proj_")) else f"model.{name}": each for name, each in tensors.items()
    }
    output = tensors.pop(OUTPUT, None)
    if output is not None and EMBEDDING not in tensors:
        raise ModelError(f"{path} has {OUTPUT} but no {EMBEDDING}, which it copies. Download the weights again.")
    if output is not None and not torch.equal(output.float(), tensors[EMBEDDING].float()):
        raise ModelError(
            f"{path} has a separate output layer ({OUTPUT}); attune supports Whisper with tied embeddings only."
        )
    return {name: tensor.float() for name, tensor in tensors.items()}


def default_prompt(assets: Path) -> DecoderPrompt:
    """The checkpoint's own language and task, where it has them."""
    shape, written = read_shape(assets / CONFIG), read_json(assets / GENERATION)
    languages = WhisperVocabulary(assets / TOKENIZER, shape.is_multilingual).languages
    language = str(written.get("language")).strip("<|>").lower()
    is_translation = shape.is_multilingual and written.get("task") == "translate"
    return DecoderPrompt(language if language in languages else None, "translate" if is_translation else "transcribe")


def export_files(prompt: DecoderPrompt, assets: Path, folder: Path) -> None:
    """Lay the files beside the weights, so that transformers loads the folder and decodes as attune does."""
    for path in assets.iterdir():
        shutil.copy(path, folder / path.name)
    config = read_json(assets / CONFIG)
    stale = ("torch_dtype", "forced_decoder_ids", *SUPPRESSED)
    config = {key: value for key, value in config.items() if key not in stale}
    write_json(folder / CONFIG, {**config, "dtype": "float32"})
    generation = {key: value for key, value in read_json(assets / GENERATION).items() if key != "forced_decoder_ids"}
    generation["return_timestamps"] = prompt.has_timestamps
    if generation.get("is_multilingual"):
        generation |= {"language": prompt.language and base_language(prompt.language), "task": prompt.task}
    write_json(folder / GENERATION, generation)


def _import_folder(folder: Path, assets: Path) -> dict[str, Tensor]:
    shape = read_shape(folder / CONFIG)
    tensors = read_folder(folder)
    require_described(shape, tensors, folder / CONFIG)
    shutil.copy(folder / CONFIG, assets)
    tokenizer = _import_tokenizer(folder, assets)
    vocabulary = WhisperVocabulary(tokenizer, shape.is_multilingual)
    require_same_kind(tokenizer, vocabulary, folder, shape)
    generation = generation_config_of(vocabulary, shape.target_positions)
    if (folder / GENERATION).is_file():
        generation = _with_own(generation, folder / GENERATION, shape)
    write_json(assets / GENERATION, generation)
    _write_preprocessor(assets, shape.mels)
    return tensors


def _with_own(made: Mapping[str, Any], path: Path, shape: WhisperShape) -> dict[str, Any]:
    """The model's own generation config goes first; what it does not suppress is not suppressed."""
    own = read_json(path)
    return {**made, **own, **{name: list(suppressed(own, name, shape, path)) for name in SUPPRESSED}}


def _import_tokenizer(folder: Path, assets: Path) -> Path:
    """Copy or make the tokenizer; returns the file that messages about it should name."""
    if (folder / TOKENIZER).is_file():
        shutil.copy(folder / TOKENIZER, assets)
        if (folder / TOKENIZER_CONFIG).is_file():
            shutil.copy(folder / TOKENIZER_CONFIG, assets)
        return folder / TOKENIZER
    if not (folder / "vocab.json").is_file():
        raise ModelError(f"{folder} has neither tokenizer.json nor vocab.json. Copy them from the original model.")
    from transformers import WhisperTokenizer  # slow to load, and hardly ever needed

    try:
        WhisperTokenizer.from_pretrained(folder).save_pretrained(assets)
    except Exception as error:  # the library raises nothing more exact
        raise ModelError(
            f"{folder} has an invalid vocab.json ({error}). Copy vocab.json and merges.txt, or tokenizer.json, "
            "from the original model."
        ) from error
    return assets / TOKENIZER


def _import_pt(path: Path, assets: Path, tokenizer: Path | None) -> dict[str, Tensor]:
    checkpoint = read_pt(path)
    if not isinstance(checkpoint, dict) or not {"dims", "model_state_dict"} <= checkpoint.keys():
        raise ModelError(f"{path} is not an OpenAI Whisper checkpoint: it has no `dims` or no `model_state_dict`.")
    tokenizer = tokenizer or path.parent
    tokenizer = tokenizer / TOKENIZER if tokenizer.is_dir() else tokenizer
    if not tokenizer.is_file():
        raise ModelError(
            f"{path} has no tokenizer. Put the tokenizer.json of the same Whisper (multilingual or English-only) "
            "beside it, or set model.tokenizer=PATH in a recipe, --tokenizer PATH in attune import."
        )
    shutil.copy(tokenizer, assets / TOKENIZER)
    write_json(assets / TOKENIZER_CONFIG, {"tokenizer_class": "WhisperTokenizer"})
    config = config_of(checkpoint["dims"], path)
    shape = shape_of(config, path)
    tensors = as_tensors(checkpoint["model_state_dict"], path)
    require_described(shape, tensors, path)
    vocabulary = WhisperVocabulary(tokenizer, shape.is_multilingual)
    require_same_kind(tokenizer, vocabulary, path, shape)
    ends = {"bos_token_id": vocabulary.end, "eos_token_id": vocabulary.end, "pad_token_id": vocabulary.end}
    write_json(assets / CONFIG, {**config, **ends, "decoder_start_token_id": vocabulary.start})
    write_json(assets / GENERATION, generation_config_of(vocabulary, shape.target_positions))
    _write_preprocessor(assets, shape.mels)
    return renamed(tensors)


def _write_preprocessor(assets: Path, mels: int) -> None:
    values = {"feature_extractor_type": "WhisperFeatureExtractor", "processor_class": "WhisperProcessor"}
    sizes = {"feature_size": mels, "sampling_rate": 16_000, "hop_length": 160, "n_fft": 400, "chunk_length": 30}
    write_json(assets / PREPROCESSOR, {**values, **sizes, "n_samples": 480_000, "nb_max_frames": 3000})
