"""Training on more memory than one device has: ranks share the optimizer's state, or the weights and gradients too.

`optimizer` (ZeRO-1): each rank remembers for its own parameters alone, moves them, and sends them to the others.
`full` (ZeRO-3, FSDP2): each rank keeps a slice of every tensor; a layer is put together when it is used.
`gradients` (ZeRO-2): the same, but what the forward pass has put together stays so until the backward pass.
Their checkpoints are in shards; any setting goes on from any other's.

After "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models" (arXiv 1910.02054).
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    OffloadPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from attune.batches.micro_batch import LoadedMicroBatch
from attune.errors import CheckpointError, ConfigError
from attune.stored_tensors import StoredTensors
from attune.training.adam8 import BLOCK, CODES, whole_codes
from attune.training.memory import return_freed_memory
from attune.training.optimizer import OptimizerLike, load_state_by_name, state_by_name
from attune.types import Batch
from attune.world import World


class OwnPart:
    """An optimizer over this rank's parameters; a step ends with everybody having everybody's."""

    def __init__(self, optimizer: Optimizer, shares: Sequence[Sequence[nn.Parameter]], world: World) -> None:
        self.optimizer = optimizer
        self.param_groups = optimizer.param_groups
        self._shares = shares
        self._world = world

    @torch.no_grad()
    def step(self) -> None:
        """Follow the gradients once."""
        self.optimizer.step()
        for rank, share in enumerate(self._shares):
            together = torch.cat([parameter.flatten() for parameter in share])
            self._world.copy_from(rank, together)
            for parameter, part in zip(share, torch.split(together, [each.numel() for each in share]), strict=True):
                parameter.copy_(part.view_as(parameter))


def shares_of(model: nn.Module, ranks: int) -> list[list[str]]:
    """The names of the trainable parameters that each rank remembers for: about as many weights for each."""
    sizes = {name: each.numel() for name, each in model.named_parameters() if each.requires_grad}
    if len(sizes) < ranks:
        raise ConfigError(f"train.shard: {len(sizes)} tensors cannot be sharded over {ranks} ranks. Use shard: none.")
    shares: list[list[str]] = [[] for _ in range(ranks)]
    loads = [0] * ranks
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        # An empty share comes first: no rank is left without one.
        rank = min(range(ranks), key=lambda rank: (bool(shares[rank]), loads[rank]))
        shares[rank].append(name)
        loads[rank] += sizes[name]
    return shares


def share_weights(model: nn.Module, world: World, regathers: bool = True, offloads: bool = False) -> None:
    """Leave each rank its slice of every tensor. A layer of a stack is one unit, and what is left over is another.

    With `regathers` a unit is put together for the forward pass and again for the backward pass; without, it stays
    whole in between (ZeRO-2). With `offloads`, slices are in main memory.
    """
    # An LSTM's output is a view of its buffer; nothing here changes one in place, which is what torch warns of.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor", category=UserWarning)
    if not dist.is_initialized():  # one rank, for the sake of main memory
        dist.init_process_group(store=HashStore(), rank=0, world_size=1)
    if offloads or world.device.type == "cpu":
        return_freed_memory()
    mesh = init_device_mesh(world.device.type, (world.size,))
    pinned = CPUOffloadPolicy(pin_memory=world.device.type == "cuda")
    how: dict[str, Any] = {"mesh": mesh, "offload_policy": pinned if offloads else OffloadPolicy()}
    if not regathers:
        how["reshard_after_forward"] = False
    for layer in layers_of(model):
        fully_shard(layer, **how)
    fully_shard(model, **how)
    for unit in (module for module in model.modules() if isinstance(module, FSDPModule)):
        unit.set_gradient_divide_factor(1.0)  # losses are sums, and the loop divides once
        unit.set_force_sum_reduction_for_comms(True)  # gloo can do nothing else
    for name in ("loss", "scorer"):
        if callable(getattr(model, name, None)):
            register_fsdp_forward_method(model, name)


def layers_of(model: nn.Module) -> list[nn.Module]:
    """The layers that are units of their own; a stack within a layer is a part of it.

    A task's head is small, and scoring copies it: it belongs to the rest.
    """
    layers: list[nn.Module] = []
    inside = {module for name, module in model.named_modules() if name.split(".")[0] == "head"}
    for stack in model.modules():  # outer ones first
        if isinstance(stack, nn.ModuleList) and stack not in inside:
            own = [
                each for each in stack if not isinstance(each, nn.ModuleList) and any(True for _ in each.parameters())
            ]
            layers += own
            inside |= {module for layer in own for module in layer.modules()}
    return layers


@torch.no_grad()
def fill_slices(model: nn.Module, tensors: Mapping[str, Tensor], device: torch.device, offloads: bool) -> None:
    """Give a shared model that was built without memory this rank's rows of these tensors, one tensor at a time."""
    filled: dict[Tensor, nn.Parameter] = {}
    for prefix, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.device.type == "meta" and isinstance(parameter, DTensor):
                if parameter not in filled:
                    first, last = own_rows(parameter)
                    own = tensors[f"{prefix}.{name}" if prefix else name][first:last].clone()
                    slice_ = _as_slice(own if offloads else own.to(device), parameter)
                    filled[parameter] = nn.Parameter(slice_, parameter.requires_grad)
                setattr(module, name, filled[parameter])
        for name, buffer in module.named_buffers(recurse=False):
            if buffer.device.type == "meta":
                module._buffers[name] = tensors[f"{prefix}.{name}" if prefix else name].to(device)


@contextmanager
def decoding_in_shards(model: nn.Module) -> Iterator[None]:
    """Meanwhile a layer is put together when a part of it is called, by any method; the rest of the model stays so.

    Ranks meet in every layer: all must call the same parts in the same order.
    """
    if not isinstance(model, FSDPModule):
        raise RuntimeError("the model is whole")
    owners: dict[nn.Module, FSDPModule] = {}
    for unit in (module for module in model.modules() if isinstance(module, FSDPModule) and module is not model):
        owners |= dict.fromkeys(cast(nn.Module, unit).modules(), unit)
    used: list[FSDPModule] = []

    def put_together(module: nn.Module, _: object) -> None:
        unit = owners[module]
        if used and used[-1] is not unit:
            used.pop().reshard()
        used[:] = [unit]
        unit.unshard()

    handles = [module.register_forward_pre_hook(put_together) for module in owners]
    model.unshard()
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for whole in (*used, model):
            whole.reshard()


def has_slices(model: nn.Module) -> bool:
    """Whether the ranks share the weights, so that none of them can use the model alone."""
    return isinstance(model, FSDPModule)


def whole_weights(model: nn.Module) -> dict[str, Tensor]:
    """The model's state as one device would have it; all ranks take part."""
    return {name: _whole(tensor) for name, tensor in model.state_dict().items()}


def whole_state(optimizer: OptimizerLike, model: nn.Module, world: World) -> dict[str, Tensor]:
    """The optimizer's state as one device would have it, on the first rank; all ranks take part."""
    if isinstance(optimizer, OwnPart):
        own = {name: tensor.cpu() for name, tensor in state_by_name(optimizer.optimizer, model).items()}
        return {name: tensor for part in world.gather_to_first(own) for name, tensor in part.items()}
    return state_by_name(_plain(optimizer), model)


@dataclass(frozen=True, slots=True)
class OwnSlice:
    """The rows that this rank has of a tensor, as they are in memory."""

    tensor: Tensor
    first: int
    shape: tuple[int, ...]  # of the whole


def own_slices(tensors: Mapping[str, Tensor], rank: int) -> dict[str, OwnSlice]:
    """What a rank writes of these tensors: its rows of each, and the first rank also what all have alike."""
    slices = {}
    for name, tensor in tensors.items():
        if isinstance(tensor, DTensor):
            slices[name] = OwnSlice(tensor.to_local().detach(), own_rows(tensor)[0], tuple(tensor.shape))
        elif rank == 0:
            slices[name] = OwnSlice(tensor.detach(), 0, tuple(tensor.shape))
    return slices


def load_stored(model: nn.Module, optimizer: OptimizerLike, weights: StoredTensors, state: StoredTensors) -> None:
    """Go on from a checkpoint, whole or in shards, under this or any other way of sharing; each rank reads its own."""
    load_weights(model, weights)
    parameters = dict(model.named_parameters())
    inner = _plain(optimizer)
    held = {parameter for group in inner.param_groups for parameter in group["params"]}
    mine = {}
    for name in state:
        parameter = parameters.get(name.rsplit("/", 1)[0])
        if parameter is None or parameter in held:
            mine[name] = _own_state(state, name, parameter)
    load_state_by_name(inner, model, mine)


@torch.no_grad()
def load_weights(model: nn.Module, weights: StoredTensors) -> None:
    """Fill a model with exactly these weights; where ranks share, each reads the rows that are its own."""
    own = model.state_dict()
    differing = sorted(own.keys() ^ weights.keys())
    if differing:
        raise CheckpointError(f"The checkpoint is of another model: {', '.join(differing[:5])} differ.")
    for name, tensor in own.items():
        if isinstance(tensor, DTensor):
            tensor.to_local().copy_(weights.rows(name, *own_rows(tensor)))
        else:
            tensor.copy_(weights[name])


def own_rows(tensor: DTensor) -> tuple[int, int]:
    """The first row that this rank has, and the one after its last; FSDP2 cuts as torch.chunk does."""
    mesh, rows = tensor.device_mesh, tensor.shape[0]
    each = -(-rows // mesh.size())
    return min(mesh.get_local_rank() * each, rows), min((mesh.get_local_rank() + 1) * each, rows)


def _own_state(state: StoredTensors, name: str, parameter: Tensor | None) -> Tensor:
    """A parameter's state as this rank keeps it; 8-bit AdamW has its codes in rows of BLOCK where a rank has all."""
    shape, key = state.stored(name).shape, name.rsplit("/", 1)[1]
    if isinstance(parameter, DTensor) and (key in CODES or shape == parameter.shape):
        first, last = own_rows(parameter)
        if shape == parameter.shape:
            return _as_slice(state.rows(name, first, last).to(parameter.device), parameter)
        return _as_slice(_codes_between(state, name, parameter, first, last).to(parameter.device), parameter)
    whole = state[name]
    return whole_codes(key, whole) if key in CODES else whole


def _codes_between(state: StoredTensors, name: str, parameter: DTensor, first: int, last: int) -> Tensor:
    """Codes of some of a parameter's rows, out of rows of BLOCK."""
    width = parameter.numel() // parameter.shape[0]
    start, end = first * width, last * width
    skipped = start // BLOCK
    blocks = state.rows(name, skipped, max(skipped, -(-end // BLOCK)))
    found = blocks.flatten()[start - skipped * BLOCK : end - skipped * BLOCK]
    return found.view(last - first, *parameter.shape[1:])


def _as_slice(own: Tensor, parameter: DTensor) -> Tensor:
    mesh, placements = parameter.device_mesh, parameter.placements
    return DTensor.from_local(own, mesh, placements, shape=parameter.shape, stride=parameter.stride())


def _plain(optimizer: OptimizerLike) -> Any:
    return optimizer.optimizer if isinstance(optimizer, OwnPart) else optimizer


def _whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor().cpu() if isinstance(tensor, DTensor) else tensor


class Idle:
    """Keeps the ranks in step: each of them needs all the others to put a layer together, so all run equally often."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._spare: Batch | None = None

    def runs(self, slots: Sequence[LoadedMicroBatch]) -> list[Batch]:
        """The batches to run, for nothing, beside this rank's own."""
        own = [slot.batch for slot in slots if slot.batch is not None]
        if self._spare is None and own:
            self._spare = own[0]
        counts = self._world.gather((len(own), self._spare is not None))
        most = max(count for count, _ in counts)
        if most and not all(has_spare for _, has_spare in counts):
            spares = [batch for batch in self._world.gather(self._spare) if batch is not None]
            self._spare = self._spare or spares[0]
        return [self._spare] * (most - len(own)) if self._spare is not None else []

    def forget(self) -> None:
        """Have other batches to run from now on: nothing times what is not finite is not nothing."""
        self._spare = None
