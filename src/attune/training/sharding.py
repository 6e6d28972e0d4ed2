"""Training on more memory than one device has: ranks share the optimizer's state, or the weights and gradients too.

`optimizer` (ZeRO-1): each rank remembers for its own parameters alone, moves them, and sends them to the others.
`full` (FSDP2): each rank keeps a slice of every tensor; a layer is put together when it is used. Checkpoints are whole
and the same in both, so that any setting goes on from any other's.

After "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models" (arXiv 1910.02054).
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from attune.batches.load import LoadedMicroBatch
from attune.errors import ConfigError
from attune.training.adam8 import CODES, Adam8, whole_codes
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


def share_weights(model: nn.Module, world: World) -> None:
    """Leave each rank its slice of every tensor. A layer of a stack is one unit, and what is left over is another."""
    # An LSTM's output is a view of its buffer; nothing here changes one in place, which is what torch warns of.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor", category=UserWarning)
    mesh = init_device_mesh(world.device.type, (world.size,))
    stacks = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    for layer in [layer for stack in stacks for layer in stack if any(True for _ in layer.parameters())]:
        if not isinstance(layer, nn.ModuleList):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for unit in (module for module in model.modules() if isinstance(module, FSDPModule)):
        unit.set_gradient_divide_factor(1.0)  # losses are sums, and the loop divides once
        unit.set_force_sum_reduction_for_comms(True)  # gloo can do nothing else
    register_fsdp_forward_method(model, "loss")


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
    state = {name: _whole(tensor) for name, tensor in state_by_name(_plain(optimizer), model).items()}
    if not has_slices(model) or not isinstance(optimizer, Adam8):
        return state
    parts = {name: name.rsplit("/", 1)[1] for name in state}
    return {name: whole_codes(parts[name], state[name]) if parts[name] in CODES else state[name] for name in state}


def load_whole(
    model: nn.Module, optimizer: OptimizerLike, weights: Mapping[str, Tensor], state: Mapping[str, Tensor]
) -> None:
    """Put back what `whole_weights` and `whole_state` gave, under this or any other way of sharing."""
    own = model.state_dict()
    model.load_state_dict({name: _like(tensor, own.get(name)) for name, tensor in weights.items()})
    parameters: dict[str, Tensor] = dict(model.named_parameters())
    inner = _plain(optimizer)
    held = {parameter for group in inner.param_groups for parameter in group["params"]}
    mine = {}
    for name, tensor in state.items():
        parameter = parameters.get(name.rsplit("/", 1)[0])
        if parameter is None or parameter in held:
            if isinstance(parameter, DTensor) and name.rsplit("/", 1)[1] in CODES:
                tensor = tensor.flatten()[: parameter.numel()].view(parameter.shape)
            mine[name] = _like(tensor, parameter)
    load_state_by_name(inner, model, mine)


def _plain(optimizer: OptimizerLike) -> Any:
    return optimizer.optimizer if isinstance(optimizer, OwnPart) else optimizer


def _whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor().cpu() if isinstance(tensor, DTensor) else tensor


def _like(tensor: Tensor, own: Tensor | None) -> Tensor:
    """The slice of a whole tensor that this rank keeps, where its own is a slice; a count of steps is never one."""
    if isinstance(own, DTensor) and tensor.shape == own.shape:
        return distribute_tensor(tensor.to(own.device), own.device_mesh, own.placements, src_data_rank=None)
    return tensor


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
