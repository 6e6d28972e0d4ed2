"""The joint network and the lattice in Triton: what `_tiles` and `_lattice` do, on CUDA.

A pass over the joint network processes rows (lattice cells) in chunks. Blocks (some frames of one utterance with a band
of its labels) select the cells: all of them in forward, those with a non-negligible occupancy in backward. The last two
matrix products of backward use torch.
"""

# B utterances, T frames, U labels, J joint width, O outputs, R cells, D durations
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
import triton
from torch import Tensor

from attune.kernels import _triton, _triton_lattice
from attune.kernels._lattice import Cells, Extent
from attune.kernels._tiles import NEGLIGIBLE, JointGradients, JointWeights

MIN_COLUMNS = 16  # the least width of a product, and what the tail's columns are rounded up to


@dataclass(frozen=True, slots=True)
class Tile:
    """A product's tile and how Triton compiles it."""

    rows: int
    outputs: int
    width: int
    warps: int
    stages: int


@dataclass(frozen=True, slots=True)
class Tiling:
    """Tile and chunk sizes. They change no result except the order in which the weights' gradients are summed."""

    forward: Tile
    backward: Tile
    chunk: int  # rows whose outputs are in memory at once
    hidden_rows: int = 32
    hidden_width: int = 128
    frames: int = 32  # of a block
    labels: int = 2  # taken together when a block is summed
    columns: int = 64  # of the joint's width, when a block is summed


# Tuned on an H200 with benchmarks/transducer_loss.py --sweep.
HALF_TILING = Tiling(forward=Tile(128, 128, 64, 8, 3), backward=Tile(128, 128, 64, 4, 3), chunk=3 << 15)
FLOAT32_TILING = Tiling(forward=Tile(64, 64, 32, 4, 2), backward=Tile(64, 64, 32, 4, 2), chunk=1 << 15, hidden_width=32)


@dataclass(frozen=True, slots=True)
class _PaddedOutputs:
    """The joint's outputs as columns: whole tiles, then a tail of `tail` columns, `stride` in all."""

    weight: Tensor  # (stride or more, J), zero beyond the real outputs
    bias: Tensor  # float32
    whole: int
    tail: int
    stride: int


@dataclass(frozen=True, slots=True)
class _RowPlan:
    """Which cells are processed as rows, and in which chunks."""

    blocks: Tensor  # (blocks, 7): utterance, first frame, frames, first label, labels, first row, first part
    first_block: Tensor  # (B + 1,) of each utterance
    frame: Tensor  # (rows,) in the flattened (B, T)
    label: Tensor  # (rows,) in the flattened (B, U + 1)
    cell: Tensor  # (rows,)
    target: Tensor  # (rows,) the next label, -1 after the last one
    parts: int  # the labels of all blocks
    chunks: list[tuple[slice, slice]]  # blocks and rows

    @property
    def most(self) -> int:
        """The rows of the largest chunk."""
        return max((rows.stop - rows.start for _, rows in self.chunks), default=0)


@dataclass(frozen=True, slots=True)
class _LatticeTables:
    """Each utterance's first cell, frames and labels + 1, on the device."""

    starts: Tensor
    lengths: Tensor
    widths: Tensor


def forward(joint: JointWeights, tiling: Tiling | None = None) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The log-probability of each target (B,), and what `backward` needs."""
    tiling = tiling or _default_tiling(joint)
    tables = _tables(joint)
    blocks = _blocks(joint.extent, tiling.frames)
    all_rows = _plan_rows(joint, tables, blocks, tiling)
    scores, norms = log_probs(joint, all_rows, tiling)
    total, occupancy = posteriors(joint, tables, all_rows, scores)
    bands = _bands(joint, all_rows, occupancy)
    return total, (occupancy.blank, occupancy.label, occupancy.durations, *norms, bands)


def backward(
    joint: JointWeights, saved: tuple[Tensor, ...], scale: Tensor, tiling: Tiling | None = None
) -> JointGradients:
    """The gradients, given those of the losses (B,)."""
    tiling = tiling or _default_tiling(joint)
    blank, label, durations, norm, duration_norm, bands = saved
    blocks = _trim_to_bands(_blocks(joint.extent, tiling.frames), bands.cpu())
    passed = _plan_rows(joint, _tables(joint), blocks, tiling)
    return gradients(joint, passed, (Cells(blank, label, durations), norm, duration_norm), scale, tiling)


def log_probs(joint: JointWeights, all_rows: _RowPlan, tiling: Tiling) -> tuple[Cells, tuple[Tensor, Tensor]]:
    """Each cell's log-probabilities of what its arcs need, and the logs of what its tokens and durations sum to."""
    lattice, tile, device = joint.lattice, tiling.forward, joint.encoded.device
    outputs, steps = _padded_outputs(joint, tile), len(joint.lattice.durations)
    rows, most, tiles = joint.extent.rows, all_rows.most, outputs.whole // tile.outputs
    hidden, tail = _hidden_space(joint, outputs, most)
    parts = tuple(torch.empty(tiles * most, device=device) for _ in range(2))
    picked = tuple(torch.empty(most, device=device) for _ in range(2))
    found = Cells(*(torch.empty(shape, device=device) for shape in ((rows,), (rows,), (rows, steps))))
    norms = torch.empty(rows, device=device), torch.empty(rows if steps else 0, device=device)
    for _, chunk in all_rows.chunks:
        count = chunk.stop - chunk.start
        _fill_hidden(joint, outputs, all_rows, chunk, (hidden, tail), tiling)
        if tiles:
            _triton.logsumexp_kernel[triton.cdiv(count, tile.rows) * tiles,](
                hidden, outputs.weight, outputs.bias, all_rows.target, *parts, *picked, chunk.start, count, tiles,
                lattice.blank, **_options(joint, tile),
            )  # fmt: skip
        _triton.merge_kernel[triton.cdiv(count, 128),](
            *parts, tail, *picked, all_rows.target, found.blank, found.label, found.durations, *norms, chunk.start,
            count, tiles, lattice.blank, outputs.whole, lattice.sigma, D=steps, HAS_TAIL=outputs.tail > 0,
            TAIL=max(outputs.tail, MIN_COLUMNS), BLOCK=128,
        )  # fmt: skip
    return found, norms


def posteriors(joint: JointWeights, tables: _LatticeTables, all_rows: _RowPlan, scores: Cells) -> tuple[Tensor, Cells]:
    """The log-probability of each target (B,) in float64, and the occupancy (posterior) of each cell's arcs."""
    lattice, device, rows = joint.lattice, joint.encoded.device, joint.extent.rows
    batch, steps = len(joint.extent.frames), len(joint.lattice.durations)
    alpha, beta = (torch.empty(rows, dtype=torch.float64, device=device) for _ in range(2))
    total = torch.empty(batch, dtype=torch.float64, device=device)
    durations = torch.tensor(lattice.durations, dtype=torch.int32).to(device, non_blocking=True)
    block = triton.next_power_of_2(max(max(joint.extent.labels) + 1, 32))
    _triton_lattice.alpha_beta_kernel[2 * batch,](
        scores.blank, scores.label, scores.durations, alpha, beta, total, tables.starts, tables.lengths,
        tables.widths, durations, batch, D=steps, BLOCK_U=block, num_warps=min(max(block // 32, 1), 16),
    )  # fmt: skip
    occupancy = Cells(*(torch.empty_like(part) for part in (scores.blank, scores.label, scores.durations)))
    if rows:
        _triton_lattice.posteriors_kernel[triton.cdiv(rows, 256),](
            all_rows.frame, all_rows.label, scores.blank, scores.label, scores.durations, alpha, beta, total,
            tables.starts, tables.lengths, tables.widths, durations, occupancy.blank, occupancy.label,
            occupancy.durations, rows, joint.encoded.shape[1], joint.predicted.shape[1], 1 + lattice.fastemit,
            D=steps, BLOCK=256,
        )  # fmt: skip
    return total, occupancy


def gradients(
    joint: JointWeights, passed: _RowPlan, cells: tuple[Cells, Tensor, Tensor], scale: Tensor, tiling: Tiling
) -> JointGradients:
    """Gradients of the inputs and weights, given those of the losses, `scale` (B,); outputs are recomputed."""
    # Output gradients are stored in half precision: scaled to at most about one, with the common factor at the end.
    factor = scale.abs().amax().float().reshape(1)
    relative = (scale.float() / factor).nan_to_num_(0.0)
    outputs, device, width = _padded_outputs(joint, tiling.backward), joint.encoded.device, joint.encoded.shape[2]
    hidden, tail = _hidden_space(joint, outputs, passed.most)
    output_grad = joint.encoded.new_empty(passed.most, outputs.stride)
    weight = torch.zeros(outputs.stride, width, device=device)
    bias = torch.zeros(outputs.stride, device=device)
    encoded = torch.zeros(joint.encoded.shape, device=device)
    predicted_parts = torch.empty(passed.parts, width, device=device)
    for blocks, chunk in passed.chunks:
        count = chunk.stop - chunk.start
        _fill_hidden(joint, outputs, passed, chunk, (hidden, tail), tiling)
        bias += _fill_output_grad(joint, outputs, passed, chunk, (hidden, tail, output_grad), (cells, relative), tiling)
        weight += _wide_product(output_grad[:count].T, hidden[:count])
        inner = torch.mm(output_grad[:count], outputs.weight[: outputs.stride], out=hidden[:count])  # which are used up
        _triton.inner_kernel[blocks.stop - blocks.start, triton.cdiv(width, tiling.columns)](
            passed.blocks, joint.encoded, joint.predicted, inner, factor, encoded, predicted_parts, blocks.start,
            chunk.start, joint.encoded.shape[1], joint.predicted.shape[1], J=width,
            ACTIVATION=joint.lattice.activation, FRAMES=tiling.frames, LABELS=tiling.labels, BLOCK_J=tiling.columns,
        )  # fmt: skip
    real = joint.weight.shape[0]
    predicted = _sum_predicted_grad(joint, passed, predicted_parts, factor)
    return JointGradients(encoded, predicted, weight[:real] * factor, bias[:real] * factor)


def _fill_hidden(
    joint: JointWeights,
    outputs: _PaddedOutputs,
    rows: _RowPlan,
    chunk: slice,
    space: tuple[Tensor, Tensor],
    tiling: Tiling,
) -> None:
    """Fill `space` with a chunk's hidden values and its outputs in the tail's columns."""
    count = chunk.stop - chunk.start
    _triton.hidden_kernel[triton.cdiv(count, tiling.hidden_rows),](
        joint.encoded, joint.predicted, outputs.weight, outputs.bias, rows.frame, rows.label, *space, chunk.start,
        count, outputs.whole, J=joint.encoded.shape[2], ACTIVATION=joint.lattice.activation,
        HAS_TAIL=outputs.tail > 0, TAIL=max(outputs.tail, MIN_COLUMNS), BLOCK_R=tiling.hidden_rows,
        BLOCK_K=tiling.hidden_width, PRECISION=_precision(joint),
    )  # fmt: skip


def _fill_output_grad(
    joint: JointWeights,
    outputs: _PaddedOutputs,
    rows: _RowPlan,
    chunk: slice,
    space: tuple[Tensor, Tensor, Tensor],
    occupancy: tuple[tuple[Cells, Tensor, Tensor], Tensor],
    tiling: Tiling,
) -> Tensor:
    """Fill a chunk's output gradients; returns their sum over the rows (O,)."""
    (hidden, tail, output_grad), ((cells, norm, duration_norm), scale) = space, occupancy
    tile, blank, count = tiling.backward, joint.lattice.blank, chunk.stop - chunk.start
    where = rows.frame, rows.cell, rows.target
    programs, tiles = triton.cdiv(count, tile.rows), outputs.whole // tile.outputs
    bias = torch.empty(programs, outputs.stride, device=hidden.device)
    if tiles:
        _triton.output_grad_kernel[programs * tiles,](
            hidden, outputs.weight, outputs.bias, *where, norm, cells.blank, cells.label, scale, output_grad, bias,
            chunk.start, count, tiles, blank, outputs.stride, joint.encoded.shape[1], **_options(joint, tile),
        )  # fmt: skip
    if outputs.tail:
        _triton.output_grad_tail_kernel[programs,](
            tail, *where, norm, duration_norm, cells.blank, cells.label, cells.durations, scale, output_grad, bias,
            chunk.start, count, blank, outputs.stride, joint.encoded.shape[1], outputs.whole,
            D=len(joint.lattice.durations), TAIL=outputs.tail, BLOCK_R=tile.rows, num_warps=8,
        )  # fmt: skip
    return bias.sum(0)


def _sum_predicted_grad(joint: JointWeights, passed: _RowPlan, predicted_parts: Tensor, factor: Tensor) -> Tensor:
    """The gradient of `predicted`, summed from the partial sums of the blocks."""
    batch, labels, width = joint.predicted.shape
    found = torch.empty(joint.predicted.shape, device=predicted_parts.device)
    _triton.predicted_kernel[batch, triton.cdiv(labels, 16), triton.cdiv(width, 64)](
        passed.blocks, passed.first_block, factor, predicted_parts, found, labels, J=width, BLOCK_U=16, BLOCK_J=64
    )
    return found


def _wide_product(left: Tensor, right: Tensor) -> Tensor:
    """The product in float32, whatever the type of its factors."""
    if left.dtype == torch.float32 or not left.is_cuda:
        return left.float() @ right.float()
    return torch.mm(left, right, out_dtype=torch.float32)


def _hidden_space(joint: JointWeights, outputs: _PaddedOutputs, rows: int) -> tuple[Tensor, Tensor]:
    """Buffers for a chunk's hidden values and for its outputs in the tail's columns."""
    tail = torch.empty(rows, outputs.tail, device=joint.encoded.device)
    return joint.encoded.new_empty(rows, joint.encoded.shape[2]), tail


def _padded_outputs(joint: JointWeights, tile: Tile) -> _PaddedOutputs:
    real, width = joint.weight.shape
    whole = real // tile.outputs * tile.outputs
    # Duration columns must stay together and must not be mixed with tokens.
    whole = min(whole, (joint.lattice.blank + 1) // tile.outputs * tile.outputs) if joint.lattice.durations else whole
    tail = triton.next_power_of_2(max(real - whole, MIN_COLUMNS)) if real > whole else 0
    stride = whole + -(-(real - whole) // MIN_COLUMNS) * MIN_COLUMNS
    weight = joint.weight.new_zeros(whole + tail, width)
    weight[:real] = joint.weight
    bias = torch.zeros(whole + tail, device=weight.device)
    bias[:real] = joint.bias
    return _PaddedOutputs(weight, bias, whole, tail, stride)


def _tables(joint: JointWeights) -> _LatticeTables:
    extent = joint.extent
    values = (extent.starts, extent.frames, [labels + 1 for labels in extent.labels])
    device = joint.encoded.device
    return _LatticeTables(*(torch.tensor(value, dtype=torch.int32).to(device, non_blocking=True) for value in values))


def _blocks(extent: Extent, size: int) -> Tensor:
    """All cells, as blocks of up to `size` frames with all their labels: columns as in `_Pass.blocks`, on the CPU."""
    frames, labels = torch.tensor(extent.frames), torch.tensor(extent.labels)
    counts = (frames + size - 1) // size
    utterance = torch.repeat_interleave(torch.arange(len(frames)), counts)
    first = (torch.arange(len(utterance)) - _exclusive_cumsum(counts)[utterance]) * size
    height = (frames[utterance] - first).clamp(max=size)
    return _block_table(utterance, first, height, torch.zeros_like(first), labels[utterance] + 1)


def _trim_to_bands(blocks: Tensor, bands: Tensor) -> Tensor:
    """Blocks reduced to the labels inside their bands."""
    utterance, first, height = blocks[:, :3].T
    return _block_table(utterance, first, height, bands[:, 0], (bands[:, 1] - bands[:, 0] + 1).clamp(min=0))


def _block_table(utterance: Tensor, first: Tensor, height: Tensor, label: Tensor, labels: Tensor) -> Tensor:
    columns = (utterance, first, height, label, labels, _exclusive_cumsum(height * labels), _exclusive_cumsum(labels))
    return torch.stack([column.to(torch.int32) for column in columns], 1)


def _exclusive_cumsum(counts: Tensor) -> Tensor:
    return counts.cumsum(0) - counts


def _plan_rows(joint: JointWeights, tables: _LatticeTables, blocks: Tensor, tiling: Tiling) -> _RowPlan:
    """The frame, label, cell and target of every row of these blocks."""
    device = joint.encoded.device
    chunks = list(_chunks(blocks, tiling.chunk))
    rows = chunks[-1][1].stop if chunks else 0
    counts = torch.bincount(blocks[:, 0], minlength=len(joint.extent.frames))
    first = torch.cat([counts.new_zeros(1), counts.cumsum(0)]).to(torch.int32)
    where = [torch.empty(rows, dtype=torch.int32, device=device) for _ in range(4)]
    there = blocks.to(device, non_blocking=True)
    most = int((blocks[:, 2] * blocks[:, 4]).max()) if rows else 0
    if rows:
        _triton.rows_kernel[len(blocks), triton.cdiv(most, 256)](
            there, tables.starts, tables.widths, joint.targets, *where, joint.encoded.shape[1],
            joint.predicted.shape[1], BLOCK=256,
        )  # fmt: skip
    parts = int(blocks[:, 4].sum())
    frame, label, cell, target = where
    return _RowPlan(there, first.to(device, non_blocking=True), frame, label, cell, target, parts, chunks)


def _chunks(blocks: Tensor, size: int) -> Iterator[tuple[slice, slice]]:
    """Whole blocks of about `size` rows together: which blocks, and which rows."""
    ends = [0, *(blocks[:, 5] + blocks[:, 2] * blocks[:, 4]).tolist()]
    start = 0
    while ends[start] < ends[-1]:
        stop = max(bisect_right(ends, ends[start] + size) - 1, start + 1)
        if ends[stop] > ends[start]:
            yield slice(start, stop), slice(ends[start], ends[stop])
        start = stop


def _bands(joint: JointWeights, all_rows: _RowPlan, occupancy: Cells) -> Tensor:
    """The first and last label with a non-negligible occupancy in each block."""
    bands = torch.empty(len(all_rows.blocks), 2, dtype=torch.int32, device=joint.encoded.device)
    if len(bands):
        _triton_lattice.band_kernel[len(bands),](
            all_rows.blocks, occupancy.blank, occupancy.label, bands, NEGLIGIBLE * torch.finfo(torch.float32).eps,
            BLOCK_U=triton.next_power_of_2(max(joint.extent.labels) + 1),
        )  # fmt: skip
    return bands


def _options(joint: JointWeights, tile: Tile) -> dict[str, int | str]:
    return {
        "J": joint.encoded.shape[2],
        "BLOCK_R": tile.rows,
        "BLOCK_V": tile.outputs,
        "BLOCK_K": tile.width,
        "PRECISION": _precision(joint),
        "num_warps": tile.warps,
        "num_stages": tile.stages,
    }


def _precision(joint: JointWeights) -> str:
    """float32 stays float32: Triton's default is TF32."""
    return "ieee" if joint.encoded.dtype == torch.float32 else "tf32"


def _default_tiling(joint: JointWeights) -> Tiling:
    default = FLOAT32_TILING if joint.encoded.dtype == torch.float32 else HALF_TILING
    return replace(default, chunk=min(default.chunk, joint.at_once or default.chunk))
