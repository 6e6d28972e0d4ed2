"""S3PRL's DownstreamExpert folders, run as they are: their own data, head, loss and metric on an upstream's features.

Such a folder is code. It runs only where the user says so, in a loop of its own: its batches come from its own loader,
so that attune's promises about order and resume end where the folder begins.
"""

# F frames, D width
from __future__ import annotations

import importlib
import importlib.util
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from attune import catalog
from attune.errors import ConfigError, DataError
from attune.families.ssl.featurizer import LayerFeaturizer
from attune.families.ssl.upstream import UPSTREAMS, Upstream
from attune.files import completed
from attune.plain_yaml import Plain, read_data

STATES = "states.pt"


class Expert(Protocol):
    """What `expert.py` exports as DownstreamExpert; an `nn.Module`."""

    def get_dataloader(self, split: str) -> Any:
        """Batches of (wavs, *others)."""

    def __call__(self, split: str, features: list[Tensor], *others: Any, **records: Any) -> Tensor:
        """The loss."""

    def log_records(self, split: str, **what: Any) -> Sequence[str] | None:
        """The names of files to save now."""


@dataclass(frozen=True, slots=True)
class RunnerSettings:
    """The `runner` and `optimizer` sections of S3PRL's configuration."""

    total_steps: int = 10_000
    gradient_accumulate_steps: int = 1
    gradient_clipping: float = 1.0
    log_step: int = 100
    eval_step: int = 1000
    save_step: int = 1000
    eval_dataloaders: tuple[str, ...] = ("dev",)
    lr: float = 1e-4


class NullLogger:
    """Stands for TensorBoard's writer, whose methods experts call."""

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **more: None


def read_settings(config: Mapping[str, Plain], changes: Mapping[str, Plain]) -> RunnerSettings:
    """The settings in a configuration, with changes by name."""
    found: dict[str, Any] = {**_section(config, "runner"), **changes}
    found.setdefault("lr", _section(config, "optimizer").get("lr", 1e-4))
    known = RunnerSettings.__dataclass_fields__
    values = {name: _typed(name, value) for name, value in found.items() if name in known}
    return RunnerSettings(**values)


def load_upstream(name: str, weights: Path | None, assets: Path) -> Upstream:
    """An upstream with its pretrained weights."""
    kind = catalog.find(UPSTREAMS, name)
    if weights is None:
        return kind.build(assets)
    if kind.read is None:
        raise ConfigError(f"The upstream {name!r} has no weights. Remove -k.")
    assets.mkdir(parents=True, exist_ok=True)
    tensors = kind.read(weights, assets)
    upstream = kind.build(assets)
    cast(nn.Module, upstream).load_state_dict(dict(tensors))
    return upstream


def load_expert(folder: Path, width: int, stride: int, config: Mapping[str, Plain], expdir: Path) -> Expert:
    """The DownstreamExpert of a folder, for features of this width and stride. Runs the folder's code."""
    made: Expert = _import_folder(folder).DownstreamExpert(
        upstream_dim=width, upstream_rate=stride, expdir=str(expdir), **config
    )
    return made


def read_config(path: Path) -> dict[str, Plain]:
    """S3PRL's configuration as plain data."""
    if not path.is_file():
        raise ConfigError(f"{path} is missing. Name the downstream's configuration: -c FILE.")
    config = read_data(path.read_text(encoding="utf-8"), str(path))
    if not isinstance(config, dict):
        raise ConfigError(f"{path} has no `key: value` lines.")
    return config


class ExpertRun:
    """An upstream, its weighted sum and an expert, trained together; `states.pt` says where it stopped."""

    def __init__(self, upstream: Upstream, featurizer: LayerFeaturizer, expert: Expert, folder: Path) -> None:
        self.upstream, self.featurizer, self.expert, self.folder = upstream, featurizer, expert, folder
        self.step = 0

    def train(self, settings: RunnerSettings, is_trainable: bool, device: torch.device) -> Iterator[str]:
        """Train to the last step; yields a line of the log now and then."""
        self._modules(is_trainable).to(device).train()
        if not is_trainable:
            self._upstream.eval().requires_grad_(False)
        parameters = [each for each in self._modules(True).parameters() if each.requires_grad]
        optimizer = torch.optim.Adam(parameters, lr=settings.lr)
        self._resume(optimizer)
        records: dict[str, list[Any]] = defaultdict(list)
        batches = self._endless("train")
        while self.step < settings.total_steps:
            for _ in range(settings.gradient_accumulate_steps):
                wavs, *others = next(batches)
                loss = self.expert("train", self._features(wavs, device), *others, records=records)
                (loss / settings.gradient_accumulate_steps).backward()  # type: ignore[no-untyped-call]
            norm = nn.utils.clip_grad_norm_(parameters, settings.gradient_clipping)
            if norm.isfinite():
                optimizer.step()
            optimizer.zero_grad()
            self.step += 1
            if self.step % settings.log_step == 0:
                self._log("train", records)
                records.clear()
                yield f"step {self.step}/{settings.total_steps}: loss {loss.item():.4f}"
            if self.step % settings.eval_step == 0:
                yield from (self.evaluate(split, device) for split in settings.eval_dataloaders)
            if self.step % settings.save_step == 0 or self.step == settings.total_steps:
                self._save(optimizer)

    @torch.no_grad()
    def evaluate(self, split: str, device: torch.device) -> str:
        """Evaluate on a split, as the expert does; what it saves, it saves by name in the folder."""
        modules = self._modules(True).to(device).eval()
        records: dict[str, list[Any]] = defaultdict(list)
        losses = [
            float(self.expert(split, self._features(wavs, device), *others, records=records, batch_id=number))
            for number, (wavs, *others) in enumerate(self.expert.get_dataloader(split))
        ]
        for name in self._log(split, records) or ():
            if Path(name).name == name:
                _write(self._weights(), self.folder / name)
        modules.train()
        return f"{split}: loss {sum(losses) / max(1, len(losses)):.4f} over {len(losses)} batches"

    def restore(self) -> None:
        """Take over the weights of the newest states."""
        if not (self.folder / STATES).exists():
            raise ConfigError(f"{self.folder} has no {STATES}. Train it first: -m train.")
        states = torch.load(self.folder / STATES, map_location="cpu", weights_only=True)
        self._modules(True).load_state_dict(states["weights"])
        self.step = states["step"]

    @property
    def _upstream(self) -> nn.Module:
        return cast(nn.Module, self.upstream)

    def _modules(self, with_upstream: bool) -> nn.ModuleDict:
        own: dict[str, nn.Module] = {"featurizer": self.featurizer, "downstream": cast(nn.Module, self.expert)}
        return nn.ModuleDict({**own, **({"upstream": self._upstream} if with_upstream else {})})

    def _features(self, wavs: Sequence[Any], device: torch.device) -> list[Tensor]:
        """The features of each recording (F, D), as many frames as its samples have strides."""
        audio = [torch.as_tensor(wav, dtype=torch.float32).flatten() for wav in wavs]
        lengths = torch.tensor([len(wav) for wav in audio], device=device)
        layers, counts = self.upstream(pad_sequence(audio, batch_first=True).to(device), lengths)
        features = self.featurizer(layers).float()
        return [row[: int(count)] for row, count in zip(features, counts, strict=True)]

    def _endless(self, split: str) -> Iterator[Any]:
        epoch = 0
        while True:
            count = 0
            for batch in _dataloader(self.expert, split, epoch):
                count += 1
                yield batch
            if not count:
                raise DataError(f"The expert's {split!r} loader has no batches.")
            epoch += 1

    def _log(self, split: str, records: Mapping[str, list[Any]]) -> Sequence[str] | None:
        return self.expert.log_records(
            split, records=records, logger=NullLogger(), global_step=self.step, batch_ids=[], total_batch_num=1
        )

    def _weights(self) -> dict[str, Tensor]:
        return dict(self._modules(True).state_dict())

    def _save(self, optimizer: torch.optim.Optimizer) -> None:
        _write(
            {"step": self.step, "weights": self._weights(), "optimizer": optimizer.state_dict()}, self.folder / STATES
        )

    def _resume(self, optimizer: torch.optim.Optimizer) -> None:
        path = self.folder / STATES
        if path.exists():
            self.restore()
            optimizer.load_state_dict(torch.load(path, map_location="cpu", weights_only=True)["optimizer"])


def _dataloader(expert: Expert, split: str, epoch: int) -> Any:
    """Experts may or may not take the epoch."""
    try:
        return expert.get_dataloader(split, epoch=epoch)  # type: ignore[call-arg]
    except TypeError:
        return expert.get_dataloader(split)


def _import_folder(folder: Path) -> ModuleType:
    """The folder's expert.py, in a package with its neighbors: `from .model import …`, `from ..model import …`."""
    if not (folder / "expert.py").is_file():
        raise ConfigError(f"{folder} has no expert.py, so it is not an S3PRL downstream.")
    parent, package = "_s3prl_downstream", f"_s3prl_downstream.{folder.name.replace('-', '_')}"
    for name, path in ((parent, folder.resolve().parent), (package, folder.resolve())):
        spec = importlib.util.spec_from_loader(name, loader=None, is_package=True)
        module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
        module.__path__ = [str(path)]
        sys.modules[name] = module
    return importlib.import_module(f"{package}.expert")


def _write(content: Any, path: Path) -> None:
    with completed(path) as part:
        torch.save(content, part)


def _section(config: Mapping[str, Plain], key: str) -> dict[str, Plain]:
    section = config.get(key)
    return section if isinstance(section, dict) else {}


def _typed(name: str, value: Any) -> Any:
    if name == "eval_dataloaders":
        return tuple(map(str, value if isinstance(value, list | tuple) else [value]))
    try:
        return float(value) if name in ("lr", "gradient_clipping") else int(value)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"runner.{name}: expected a number, found {value!r}.") from error
