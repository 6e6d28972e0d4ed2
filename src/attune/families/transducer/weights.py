"""`.nemo` files in, and out again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from attune.errors import ModelError
from attune.families.transducer.archive import CONFIG, Archive, read_archive, tokenizer_files, write_archive
from attune.families.transducer.model import TransducerModel
from attune.families.transducer.names import from_nemo, to_nemo
from attune.families.transducer.shape import SUPPORTED, TransducerShape, read_shape
from attune.files import write_text
from attune.plain_yaml import Plain, write_data
from attune.text import tokenizers
from attune.text.tokenizers.sentencepiece import SentencePieceTokenizer

MODEL = "nemo.collections.asr.models.rnnt_bpe_models.EncDecRNNTBPEModel"
MODELS = ("EncDecRNNTBPEModel", "EncDecHybridRNNTCTCBPEModel")
NEMO = "model.nemo"
SMALL = 10**8  # weights; below this a configuration is compared with its weights one by one


def import_weights(path: Path, assets: Path) -> Mapping[str, Tensor]:
    """Write the configuration and the tokenizer to `assets`; the weights, under the model's own names."""
    if path.is_dir():
        raise ModelError(
            f"{path} is a folder without an attune model. A transducer starts from a .nemo file, a "
            "model folder or a run."
        )
    archive = without_ctc(read_archive(path))
    kind = str(archive.config.get("target", "")).rpartition(".")[2]
    if kind not in MODELS:
        raise ModelError(f"{path} has a {kind or 'model without a name'}. {SUPPORTED}")
    _require_described(read_shape(archive.config), archive, path)
    if not tokenizer_files(archive.config).get("model_path"):
        raise ModelError(f"{path} has no SentencePiece model. {SUPPORTED}")
    write_text(assets / CONFIG, archive.config_text)
    for name, content in archive.files.items():
        if Path(name).name != name:
            raise ModelError(f"{path} is refused: its tokenizer file {name!r} is not a plain name.")
        (assets / name).write_bytes(content)
    tensors = from_nemo(archive.tensors)
    return {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}


def _require_described(shape: TransducerShape, archive: Archive, path: Path) -> None:
    """Refuse a shape that needs far more weights than there are, before a model of that size is built."""
    found = sum(tensor.numel() for tensor in archive.tensors.values())
    if shape.weights > max(SMALL, 2 * found):
        raise ModelError(
            f"{path} describes a model of at least {shape.weights:,} weights but has {found:,}. Download it again."
        )


def without_ctc(archive: Archive) -> Archive:
    """A hybrid model as the transducer it is, without its second head."""
    if "aux_ctc" not in archive.config:
        return archive
    config = {**{key: value for key, value in archive.config.items() if key != "aux_ctc"}, "target": MODEL}
    tensors = {name: tensor for name, tensor in archive.tensors.items() if not name.startswith("ctc_decoder.")}
    return Archive(config, write_data(config), tensors, archive.files)


def export_nemo(model: TransducerModel, assets: Path, folder: Path) -> None:
    """Write model.nemo into an exported model's folder, where the tokens are SentencePiece's."""
    tensors = to_nemo(model.state_dict(), model.shape)
    if not any((folder / "task").iterdir()):
        text = (assets / CONFIG).read_text(encoding="utf-8")
        files = {name: (assets / name).read_bytes() for name in sorted(set(tokenizer_files(model.described).values()))}
        write_archive(folder / NEMO, Archive(model.described, text, tensors, files))
        return
    tokenizer = tokenizers.load(folder / "task")
    if isinstance(tokenizer, SentencePieceTokenizer):
        changed = _with_tokens(model.described, model.pieces, tokenizer.without_blank(), tensors)
        write_archive(folder / NEMO, changed)


def _with_tokens(
    config: Mapping[str, Plain], pieces: tuple[str, ...], tokenizer: bytes, tensors: Mapping[str, Tensor]
) -> Archive:
    """An archive whose configuration and files speak of these tokens."""
    spelled = "".join(f"{piece}\t0\n" for piece in pieces).encode()
    words = "".join(f"{_word_piece(piece)}\n" for piece in pieces if piece != "<unk>").encode()
    contents = {"model_path": ("tokenizer.model", tokenizer), "vocab_path": ("vocab.txt", words)}
    contents["spe_tokenizer_vocab"] = ("tokenizer.vocab", spelled)
    named = {
        key: (f"{hashlib.sha256(content).hexdigest()[:32]}_{name}", content)
        for key, (name, content) in contents.items()
    }
    paths: dict[str, Plain] = {key: f"nemo:{name}" for key, (name, _) in named.items()}
    changed: dict[str, Plain] = {
        **config,
        "tokenizer": {"dir": None, "type": "bpe", **paths},
        "decoder": {**_section(config, "decoder"), "vocab_size": len(pieces)},
        "joint": {**_section(config, "joint"), "num_classes": len(pieces), "vocabulary": [*pieces]},
        "labels": [*pieces],
    }
    return Archive(changed, write_data(changed), tensors, dict(named.values()))


def _section(config: Mapping[str, Plain], key: str) -> dict[str, Plain]:
    section = config.get(key)
    return section if isinstance(section, dict) else {}


def _word_piece(piece: str) -> str:
    """A piece as NeMo lists it: what does not begin a word has ## before it."""
    if piece.startswith("▁"):
        return piece.removeprefix("▁") or "▁"
    return f"##{piece}"
