"""SpeechBrain's folders: which parts a pretrainer loads or a run saved, where each comes from, and their tensors.

As in its Pretrainer, a part is `NAME.ckpt` in the folder, unless `paths` names another file: in the folder, on the Hub
(`speechbrain/asr-crdnn-rnnlm-librispeech/lm.ckpt`) or at a URL. Nothing is looked up in the working folder, where a
file of the same name could be anybody's, and no path leads out of the folder. A run's folder has checkpoints: what the
best one has is what was trained, and the pretrainer's parts are what it began with.
"""

from __future__ import annotations

import glob
import math
import pickle
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import torch
from torch import Tensor

from attune.errors import ModelError
from attune.families._checkpoints import require_content
from attune.families._hyperparams import Hyperparams, Tagged, Value, read_hyperparams
from attune.tensor_files import read_pickled, require_bounded

FILE = "hyperparams.yaml"
TOKENIZER = "tokenizer.model"
META = "CKPT.yaml"
RNN_LM, TRANSFORMER_LM = LANGUAGE_MODELS = ("RNNLM", "TransformerLM")
RECOGNIZER = "ModuleList"
RANKED_BY = ("WER", "loss")  # the lower, the better
HUB_FILE = re.compile(r"([\w.-]+/[\w.-]+)/([\w.-]+(?:/[\w.-]+)*)")


@dataclass(frozen=True, slots=True)
class PretrainerPart:
    """What a pretrainer loads: its name, the kind of object, the key of that, and the file that it is read from."""

    name: str
    kind: str
    key: str
    file: Path
    address: str | None  # where the file is fetched from, if it is not in the folder


def open_hyperparams(folder: Path) -> Hyperparams:
    """A folder's hyperparams.yaml as data."""
    return read_hyperparams(folder / FILE)


def has_lm(folder: Path) -> bool:
    """Whether a folder has a language model that the family lm imports."""
    return any(part.kind in LANGUAGE_MODELS for part in parts_of(open_hyperparams(folder)))


def is_lm_alone(folder: Path) -> bool:
    """Whether a folder has such a language model and no recognizer."""
    params = open_hyperparams(folder)
    return has_lm(folder) and not searcher_of(params) and all(part.kind != RECOGNIZER for part in parts_of(params))


def parts_of(params: Hyperparams) -> Iterator[PretrainerPart]:
    """What the pretrainer loads, and what the best checkpoint of a run has in its place."""
    saved = {part.key: part for part in _saved_parts(params)}
    for part in _loaded_parts(params):
        yield saved.pop(part.key, part)
    yield from saved.values()


def _loaded_parts(params: Hyperparams) -> Iterator[PretrainerPart]:
    pretrainer = params.arguments("pretrainer")
    loadables, paths = pretrainer.get("loadables"), pretrainer.get("paths")
    keys = _references(params, "pretrainer", "loadables")
    for name, loaded in loadables.items() if isinstance(loadables, dict) else ():
        if isinstance(loaded, Tagged):
            named = paths.get(name) if isinstance(paths, dict) else None
            file, address = _place(params, name, None if named is None else str(named))
            yield PretrainerPart(name, loaded.name, keys.get(name, ""), file, address)


def _saved_parts(params: Hyperparams) -> Iterator[PretrainerPart]:
    keys = _references(params, "checkpointer", "recoverables")
    saves = PurePosixPath(str(params.arguments("checkpointer").get("checkpoints_dir") or "save")).name
    checkpoints = [path.parent for path in sorted(params.path.parent.glob(f"{glob.escape(saves)}/CKPT+*/{META}"))]
    if keys and checkpoints:
        best = min(reversed(checkpoints), key=_rank)
        for name, key in keys.items():
            if (best / f"{name}.ckpt").is_file():
                yield PretrainerPart(name, params.name(key), key, best / f"{name}.ckpt", None)


def _rank(checkpoint: Path) -> float:
    """The error rate that a checkpoint was saved with, or else the loss."""
    meta = read_hyperparams(checkpoint / META).root
    found = [value for name in RANKED_BY if isinstance(value := meta.get(name), int | float)]
    return found[0] if found else math.inf


def remote_parts(folder: Path) -> Mapping[str, str]:
    """The addresses of the parts that are elsewhere, by the name that each has once it is in the folder."""
    return {part.file.name: part.address for part in parts_of(open_hyperparams(folder)) if part.address}


def _place(params: Hyperparams, name: str, named: str | None) -> tuple[Path, str | None]:
    folder = params.path.parent
    collected = folder / f"{PurePosixPath(name).name}.ckpt"
    if named is None:
        return collected, None
    if re.match(r"https?://", named):
        return collected, named
    path = PurePosixPath(named)
    if not path.is_absolute() and ".." not in path.parts:
        if (folder / path).is_file():
            return folder / path, None
        if on_hub := HUB_FILE.fullmatch(named):
            return collected, f"hf://{on_hub[1]}/{on_hub[2]}"
    if collected.is_file():  # a place that is not looked at: the file was copied, as the message below says
        return collected, None
    raise ModelError(
        f"{params.path} loads {name} from {named}, which is not in its folder, on the Hub or at a URL. Copy the "
        f"file into the folder and name it {collected.name}."
    )


def _references(params: Hyperparams, section: str, name: str) -> dict[str, str]:
    """The keys that the entries of an object, such as the loadables of a pretrainer, refer to."""
    entries = params.raw(f"{section}.{name}")
    return {name: params.key_of(value) for name, value in entries.items()} if isinstance(entries, dict) else {}


def searcher_of(params: Hyperparams) -> str:
    """The key of the search for the final scores, or nothing: a run's file has one for validation, too."""
    made = [key for key, value in params.root.items() if isinstance(value, Tagged) and value.tag.startswith("!new:")]
    found = [key for key in made if params.name(key).startswith("S2S")]
    return next((key for key in ("decoder", "test_search") if key in found), found[0] if found else "")


def ends_of(params: Hyperparams, tokens: int) -> tuple[int, int]:
    """The tokens that begin and end a text: the searcher's or, of a language model alone, those of the file."""
    searcher = params.arguments(searcher_of(params))
    begin, end = (_mark(params, key, searcher.get(key, params.get(key)), tokens) for key in ("bos_index", "eos_index"))
    return begin, end


def _mark(params: Hyperparams, key: str, value: Value, tokens: int) -> int:
    mark = number_of(params, {} if value is None else {key: value}, key, 0)
    if not 0 <= mark < tokens:
        raise ModelError(f"{params.path} has {key}={mark}, which is none of its {tokens:,} tokens.")
    return mark


def number_of(params: Hyperparams, section: Mapping[str, Value], key: str, default: int) -> int:
    """A whole number of a section."""
    value = section.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool):
        found = value.tag if isinstance(value, Tagged) else repr(value)
        raise ModelError(f"{params.path} has {key}={found}; expected a whole number.")
    return value


def numbers_of(params: Hyperparams, section: dict[str, Value], key: str, default: tuple[int, ...]) -> tuple[int, ...]:
    """A list of whole numbers of a section."""
    value = section.get(key, default)
    if not isinstance(value, tuple) or not value:
        raise ModelError(f"{params.path} has {key}={value!r}; expected a list of whole numbers.")
    return tuple(number_of(params, {key: each}, key, 0) for each in value)


def copy_tokenizer(part: PretrainerPart, assets: Path) -> None:
    """Keep the SentencePiece model with the assets."""
    _require_file(part.file)
    shutil.copyfile(part.file, assets / TOKENIZER)


def _require_file(path: Path) -> None:
    """Refuse what is not there, or was not downloaded whole."""
    if not path.is_file():
        raise ModelError(f"{path} is missing: the pretrainer of {FILE} names it.")
    require_content(path)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors and counts of a checkpoint, and nothing else of it."""
    _require_file(path)
    try:
        with path.open("rb") as file:
            found = dict(read_pickled(file, path.stat().st_size))  # type: ignore[call-overload]
        tensors = {name: torch.as_tensor(value) for name, value in found.items() if isinstance(value, Tensor | int)}
        require_bounded(tensors, path.stat().st_size)
    except pickle.UnpicklingError as error:
        raise ModelError(f"{path} is refused: it has more than tensors. Nothing in it was executed.") from error
    except Exception as error:  # damaged bytes make unpickling fail in any way
        raise ModelError(f"Cannot read {path} as a checkpoint: {' '.join(str(error).split())[:300]}") from error
    return tensors
