"""Files of tensors that other toolkits wrote: transformers folders and `.pt` files, read as data."""

import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from attune.errors import ModelError
from attune.families._json import read_json
from attune.tensor_files import BadTensorFile, read_pickled, read_safetensors, require_bounded

LFS_POINTER = b"version https://git-lfs"


def read_folder(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder, in whichever of transformers' four ways they are kept."""
    for name in ("model.safetensors", "pytorch_model.bin"):
        if (folder / name).is_file():
            return _read_file(folder / name)
        if (folder / f"{name}.index.json").is_file():
            shards = _shards(folder / f"{name}.index.json")
            return {key: tensor for shard in shards for key, tensor in _read_file(folder / shard).items()}
    raise ModelError(f"{folder} has no weights: no model.safetensors and no pytorch_model.bin, whole or sharded.")


def _shards(index: Path) -> list[str]:
    by_name = read_json(index).get("weight_map")
    if not isinstance(by_name, dict) or not all(map(_is_name, by_name.values())):
        raise ModelError(f"{index} has no `weight_map`. Download it again.")
    return sorted(set(by_name.values()))


def _is_name(shard: object) -> bool:
    """Whether this names a file of the same folder."""
    return isinstance(shard, str) and Path(shard).name == shard


def _read_file(path: Path) -> dict[str, Tensor]:
    if path.suffix != ".safetensors":
        return as_tensors(read_pt(path), path)
    require_content(path)
    return read_safetensors(path)


def read_pt(path: Path, toolkits: tuple[str, ...] = ()) -> Any:
    """What a `.pt` file holds; classes of these toolkits, which are not needed for it, are read as their values."""
    require_content(path)
    try:
        with path.open("rb") as file:
            return read_pickled(file, path.stat().st_size, toolkits)
    except Exception as error:  # damaged bytes make unpickling fail in any way
        raise ModelError(f"Cannot read tensors from {path}: {_reason(error)}") from error


def require_content(path: Path) -> None:
    """Refuse what a download that went wrong leaves: nothing, or git-lfs's pointer to the file."""
    try:
        with path.open("rb") as file:
            start = file.read(len(LFS_POINTER))
    except OSError as error:
        raise ModelError(f"Cannot read {path}: {error.strerror or error}") from error
    if not start:
        raise ModelError(f"{path} is empty. Download it again.")
    if start == LFS_POINTER:
        raise ModelError(f"{path} is a git-lfs pointer, not the file. Run: git lfs pull")


def _reason(error: Exception) -> str:
    """Why torch did not read a file, without its advice to let the file run code."""
    if isinstance(error, BadTensorFile):
        return f"{error}."
    code = re.search(r"GLOBAL (\S+)", str(error))
    if code:
        return f"it contains code ({code[1]}), which is not run. Save the tensors alone, e.g. as safetensors."
    is_advice = isinstance(error, pickle.UnpicklingError) or "weights_only" in str(error)
    detail = "" if is_advice else f" ({str(error).partition('. ')[0] or type(error).__name__})"
    return f"it is damaged, or not a torch file{detail}. Download it again, or save its tensors as safetensors."


def as_tensors(loaded: object, path: Path) -> dict[str, Tensor]:
    """Weights by their names, and nothing else."""
    if not isinstance(loaded, dict):
        raise ModelError(f"{path} has a {type(loaded).__name__}; expected weights by name.")
    other = [name for name, each in loaded.items() if not (isinstance(name, str) and isinstance(each, Tensor))]
    if other:
        raise ModelError(f"{path} has more than weights: {other[0]!r:.60} is not a tensor. Save the weights alone.")
    try:
        require_bounded(loaded, path.stat().st_size)
    except BadTensorFile as error:
        raise ModelError(f"{path} is refused: {error}.") from error
    return loaded


def fitted(tensors: Mapping[str, Tensor], own: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """Exactly the tensors that a module has (`own`), in float32; refused where one is missing or of another shape."""
    missing = [name for name in own if name not in tensors]
    if missing:
        raise ModelError(f"{path} has no {', '.join(missing[:3])}, which its configuration needs. Download it again.")
    wrong = [name for name in own if own[name].shape != tensors[name].shape]
    if wrong:
        shapes = f"{tuple(tensors[wrong[0]].shape)}, expected {tuple(own[wrong[0]].shape)}"
        raise ModelError(f"{path} does not fit its configuration: {wrong[0]} is {shapes}. Download it again.")
    return {name: _widened(tensors[name]) for name in own}


def _widened(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor
