"""S3PRL's DownstreamExpert folders, run as they are: their own data, head, loss and metric on an upstream's features.

Such a folder is code. It runs only where the user says so, in a loop of its own: its batches come from its own loader,
so that attune's promises about order and resume end where the folder begins.
"""

# F frames, D width
from __future__ import annotations

import importlib
import importlib.util
import inspect
import pickle
import random
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from attune import catalog
from attune.errors import ConfigError, DataError
from attune.families.ssl.expert_config import MakeOptimizer, RunnerSettings
from attune.families.ssl.featurizer import LayerFeaturizer
from attune.families.ssl.upstream import UPSTREAMS, Upstream
from attune.files import completed
from attune.plain_yaml import Plain

STATES = "states.pt"


class Expert(Protocol):
    """What `expert.py` exports as DownstreamExpert; an `nn.Module`."""

    def get_dataloader(self, split: str) -> Any:
        """Batches of (wavs, *others)."""

    def __call__(self, split: str, features: list[Tensor], *others: Any, **records: Any) -> Tensor:
        """The loss."""

    def log_records(self, split: str, **what: Any) -> Sequence[str] | None:
        """The names of files to save now."""


class NullLogger:
    """Stands for TensorBoard's writer, whose methods experts call."""

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **more: None


def seed_everything(seed: int) -> None:
    """Experts draw from the generators that all share, which S3PRL seeds."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


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


def load_expert(
    folder: Path, width: int, stride: int, config: Mapping[str, Plain], options: Mapping[str, object]
) -> Expert:
    """The DownstreamExpert of a folder, for features of this width and stride. Runs the folder's code.

    It is given its configuration and the options of the command line, such as `expdir`.
    """
    made: Expert = _import_folder(folder).DownstreamExpert(
        upstream_dim=width, upstream_rate=stride, **{**options, **config}
    )
    return made


class ExpertRun:
    """An upstream, its weighted sum and an expert, trained together; `states.pt` says where it stopped."""

    def __init__(self, upstream: Upstream, featurizer: LayerFeaturizer, expert: Expert, folder: Path) -> None:
        self.upstream, self.featurizer, self.expert, self.folder = upstream, featurizer, expert, folder
        self.step = 0

    def train(
        self,
        settings: RunnerSettings,
        is_trainable: bool,
        device: torch.device,
        make_optimizer: MakeOptimizer,
        lr_at: Callable[[int], float],
    ) -> Iterator[str]:
        """Train to the last step; yields a line of the log now and then."""
        self._modules(is_trainable).to(device).train()
        if not is_trainable:
            self._upstream.eval().requires_grad_(False)
        parameters = [each for each in self._modules(True).parameters() if each.requires_grad]
        optimizer = make_optimizer(parameters)
        self._resume(optimizer)
        seen = _Seen()
        batches = self._endless(settings.train_dataloader, seen)
        while self.step < settings.total_steps:
            for _ in range(settings.gradient_accumulate_steps):
                wavs, *others = next(batches)
                features = self._features(wavs, device)
                loss = self.expert(settings.train_dataloader, features, *others, records=seen.records)
                (loss / settings.gradient_accumulate_steps).backward()  # type: ignore[no-untyped-call]
            self.step += 1
            _take_step(optimizer, parameters, settings.gradient_clipping, lr_at(self.step))
            if self.step % settings.log_step == 0:
                self._save_as(self._log(settings.train_dataloader, seen))
                seen.clear()
                yield f"step {self.step}/{settings.total_steps}: loss {loss.item():.4f}"
            if self.step % settings.eval_step == 0:
                for split in settings.eval_dataloaders:
                    line, names = self._evaluated(split, device)
                    self._save_as(names)
                    yield line
            if self.step % settings.save_step == 0 or self.step == settings.total_steps:
                self._save(optimizer)

    def evaluate(self, split: str, device: torch.device) -> str:
        """Evaluate on a split, as the expert does; nothing is saved."""
        return self._evaluated(split, device)[0]

    @torch.no_grad()
    def _evaluated(self, split: str, device: torch.device) -> tuple[str, Sequence[str] | None]:
        """The loss in words, and the files by which the expert wants this state saved."""
        modules = self._modules(True).to(device)
        learning = [module for module in modules.modules() if module.training]  # not a frozen upstream
        modules.eval()
        seen, losses = _Seen(), []
        for number, (wavs, *others) in enumerate(self.expert.get_dataloader(split)):
            seen.batch_ids.append(number)
            features = self._features(wavs, device)
            losses.append(float(self.expert(split, features, *others, records=seen.records, batch_id=number)))
        seen.total = len(losses)
        names = self._log(split, seen)
        for module in learning:
            module.training = True
        return f"{split}: loss {sum(losses) / max(1, len(losses)):.4f} over {len(losses)} batches", names

    def restore(self, path: Path) -> None:
        """Take over the weights in a folder's newest states, or in a file that the expert had saved."""
        file = path / STATES if path.is_dir() else path
        if not file.exists():
            raise ConfigError(f"{file} is missing. Train first: -m train.")
        states = _read_states(file)
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

    def _endless(self, split: str, seen: _Seen) -> Iterator[Any]:
        epoch = 0
        while True:
            number, loader = -1, _dataloader(self.expert, split, epoch)
            seen.total = len(loader)
            for number, batch in enumerate(loader):
                seen.batch_ids.append(number)
                yield batch
            if number < 0:
                raise DataError(f"The expert's {split!r} loader has no batches.")
            epoch += 1

    def _log(self, split: str, seen: _Seen) -> Sequence[str] | None:
        return self.expert.log_records(
            split,
            records=seen.records,
            logger=NullLogger(),
            global_step=self.step,
            batch_ids=seen.batch_ids,
            total_batch_num=seen.total,
        )

    def _states(self) -> dict[str, Any]:
        return {"step": self.step, "weights": dict(self._modules(True).state_dict())}

    def _save(self, optimizer: torch.optim.Optimizer) -> None:
        _write({**self._states(), "optimizer": optimizer.state_dict()}, self.folder / STATES)

    def _save_as(self, names: Sequence[str] | None) -> None:
        for name in names or ():
            if Path(name).name == name:
                _write(self._states(), self.folder / name)

    def _resume(self, optimizer: torch.optim.Optimizer) -> None:
        path = self.folder / STATES
        if path.exists():
            self.restore(self.folder)
            optimizer.load_state_dict(_read_states(path)["optimizer"])


@dataclass
class _Seen:
    """What an expert has recorded since the last log, and in which batches of how many."""

    records: defaultdict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    batch_ids: list[int] = field(default_factory=list)
    total: int = 0

    def clear(self) -> None:
        self.records.clear()
        self.batch_ids.clear()


def _take_step(optimizer: torch.optim.Optimizer, parameters: Sequence[nn.Parameter], clip: float, lr: float) -> None:
    """One step at this learning rate; none where a gradient is not finite."""
    norm = nn.utils.clip_grad_norm_(parameters, clip)
    for group in optimizer.param_groups:
        group["lr"] = lr
    if norm.isfinite():
        optimizer.step()
    optimizer.zero_grad()


def _read_states(file: Path) -> dict[str, Any]:
    try:
        states = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        states = None
    if not isinstance(states, dict) or "weights" not in states:
        raise ConfigError(f"{file} was not written by attune, which reads its own states of such a folder only.")
    return states


def _dataloader(expert: Expert, split: str, epoch: int) -> Any:
    """Experts may or may not take the epoch."""
    takes = inspect.signature(expert.get_dataloader).parameters.values()
    if any(each.name == "epoch" or each.kind is each.VAR_KEYWORD for each in takes):
        return expert.get_dataloader(split, epoch=epoch)  # type: ignore[call-arg]
    return expert.get_dataloader(split)


def _import_folder(folder: Path) -> ModuleType:
    """The folder's expert.py, in a package with its neighbors: `from .model import …`, `from ..model import …`."""
    if not (folder / "expert.py").is_file():
        raise ConfigError(f"{folder} has no expert.py, so it is not an S3PRL downstream.")
    parent, package = "_s3prl_downstream", f"_s3prl_downstream.{folder.name.replace('-', '_')}"
    for name in [each for each in sys.modules if each.startswith(f"{package}.")]:
        del sys.modules[name]  # of another folder of that name, or as it was before it was edited
    for name, path in ((parent, folder.resolve().parent), (package, folder.resolve())):
        spec = importlib.util.spec_from_loader(name, loader=None, is_package=True)
        module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
        module.__path__ = [str(path)]
        sys.modules[name] = module
    return importlib.import_module(f"{package}.expert")


def _write(content: Any, path: Path) -> None:
    with completed(path) as part:
        torch.save(content, part)
