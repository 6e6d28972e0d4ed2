"""The Triton kernels of the transducer loss; `_fused.py` says when each runs.

Cells are packed: an utterance's cells follow one another, frame by frame, each frame with its own U + 1 cells. A pass
over the joint network takes some of the cells as rows, and `row_frame`, `row_label`, `row_cell` and `row_target` say of
each row where it is. Outputs are split in two: whole tiles of columns, and a narrow tail (the odd rest, with it often
the blank, and the durations), so that no product needs a mask.

Nothing is added atomically: the same bits each time. What changes from batch to batch is not compiled in (integers by
`do_not_specialize`, offsets in place of pointers into the middle of something): a kernel is compiled once.
"""

# A kernel's arguments are pointers and numbers of the compiler's own types.
# mypy: disable-error-code="no-untyped-def,untyped-decorator"
# ruff: noqa: ANN001
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
NOWHERE = tl.constexpr(float("-inf"))


@triton.jit
def _activate(values, ACTIVATION: tl.constexpr) -> tl.tensor:
    if ACTIVATION == "relu":
        return tl.where(values < 0, 0.0, values)  # a maximum would take what is no number for zero
    elif ACTIVATION == "sigmoid":
        return 1.0 / (1.0 + tl.exp(-values))
    else:
        return 2.0 / (1.0 + tl.exp(-2.0 * values)) - 1.0


@triton.jit
def _slope(values, ACTIVATION: tl.constexpr) -> tl.tensor:
    """The activation's derivative."""
    if ACTIVATION == "relu":
        return tl.where(values > 0, 1.0, 0.0)
    elif ACTIVATION == "sigmoid":
        value = _activate(values, "sigmoid")
        return value * (1.0 - value)
    else:
        value = _activate(values, "tanh")
        return 1.0 - value * value


@triton.jit(do_not_specialize=["most_frames", "most_labels"])
def rows_kernel(
    blocks, starts, widths, targets, row_frame, row_label, row_cell, row_target, most_frames, most_labels,
    BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """Where each row of each block of frames is: its frame and label in the padded batch, its cell, its next label."""
    block = blocks + tl.program_id(0) * 7
    utterance = tl.load(block)
    first_frame = tl.load(block + 1)
    frames = tl.load(block + 2)
    first_label = tl.load(block + 3)
    labels = tl.load(block + 4)
    offset = tl.load(block + 5)
    width = tl.load(widths + utterance)
    row = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    real = row < frames * labels
    frame = first_frame + row // labels
    label = first_label + row % labels
    says = real & (label < width - 1)
    target = tl.load(targets + utterance * (most_labels - 1) + label, mask=says, other=-1)
    tl.store(row_frame + offset + row, utterance * most_frames + frame, mask=real)
    tl.store(row_label + offset + row, utterance * most_labels + label, mask=real)
    tl.store(row_cell + offset + row, tl.load(starts + utterance) + frame * width + label, mask=real)
    tl.store(row_target + offset + row, target.to(tl.int32), mask=real)


@triton.jit(do_not_specialize=["first", "rows"])
def hidden_kernel(
    encoded, predicted, weight, bias, row_frame, row_label, hidden, tail, first, rows, first_output,
    J: tl.constexpr, ACTIVATION: tl.constexpr, HAS_TAIL: tl.constexpr, TAIL: tl.constexpr, BLOCK_R: tl.constexpr,
    BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
) -> None:  # fmt: skip
    """The joint's hidden values (rows, J), and on the way the outputs of the tail's columns (rows, TAIL)."""
    row = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    real = row < rows
    frame = tl.load(row_frame + first + row, mask=real, other=0).to(tl.int64)
    label = tl.load(row_label + first + row, mask=real, other=0).to(tl.int64)
    column = first_output + tl.arange(0, TAIL)
    outputs = tl.zeros((BLOCK_R, TAIL), tl.float32)
    for start in range(0, J, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        inside = real[:, None] & (k < J)[None, :]
        said = tl.load(predicted + label[:, None] * J + k[None, :], mask=inside, other=0.0).to(tl.float32)
        heard = tl.load(encoded + frame[:, None] * J + k[None, :], mask=inside, other=0.0).to(tl.float32)
        value = _activate(heard + said, ACTIVATION).to(hidden.dtype.element_ty)
        tl.store(hidden + row[:, None].to(tl.int64) * J + k[None, :], value, mask=inside)
        if HAS_TAIL:
            part = tl.load(weight + column[None, :] * J + k[:, None], mask=(k < J)[:, None], other=0.0)
            # Beyond J the activation of nothing need not be nothing, but the weights are.
            outputs = tl.dot(value, part, outputs, input_precision=PRECISION)
    if HAS_TAIL:
        outputs += tl.load(bias + column)[None, :]
        place = tail + row[:, None] * TAIL + tl.arange(0, TAIL)[None, :]
        tl.store(place, outputs, mask=real[:, None])


@triton.jit
def _outputs(
    hidden, weight, bias, row, real, column, J: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_V: tl.constexpr,
    BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """The joint's outputs (BLOCK_R, BLOCK_V) of a tile, in float32."""
    k = tl.arange(0, BLOCK_K)
    left = hidden + row[:, None] * J + k[None, :]
    right = weight + column[None, :] * J + k[:, None]
    found = tl.zeros((BLOCK_R, BLOCK_V), tl.float32)
    for start in range(0, J, BLOCK_K):
        if J % BLOCK_K == 0:
            a = tl.load(left, mask=real[:, None], other=0.0)
            b = tl.load(right)
        else:
            a = tl.load(left, mask=real[:, None] & (start + k < J)[None, :], other=0.0)
            b = tl.load(right, mask=(start + k < J)[:, None], other=0.0)
        found = tl.dot(a, b, found, input_precision=PRECISION)
        left += BLOCK_K
        right += BLOCK_K
    return found + tl.load(bias + column)[None, :]


@triton.jit(do_not_specialize=["first", "rows"])
def sums_kernel(
    hidden, weight, bias, row_target, highest, sums, label_output, blank_output, first, rows, tiles, blank,
    J: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
) -> None:  # fmt: skip
    """Of a tile of outputs: each row's highest, its sum of exponentials, and its label's and blank's if they are here.

    `highest` and `sums` are (column tiles, rows). Programs that share rows follow one another, for the cache.
    """
    tile = tl.program_id(0) % tiles
    row = (tl.program_id(0) // tiles) * BLOCK_R + tl.arange(0, BLOCK_R)
    real = row < rows
    start = tile * BLOCK_V
    column = start + tl.arange(0, BLOCK_V)
    outputs = _outputs(hidden, weight, bias, row, real, column, J, BLOCK_R, BLOCK_V, BLOCK_K, PRECISION)
    most = tl.max(outputs, 1)
    total = tl.sum(tl.exp2(outputs * LOG2E - (most * LOG2E)[:, None]), 1)
    tl.store(highest + tile * rows + row, most, mask=real)
    tl.store(sums + tile * rows + row, total, mask=real)
    target = tl.load(row_target + first + row, mask=real, other=-1)
    chosen = tl.sum(tl.where(column[None, :] == target[:, None], outputs, 0.0), 1)
    tl.store(label_output + row, chosen, mask=real & (target >= start) & (target < start + BLOCK_V))
    if (blank >= start) & (blank < start + BLOCK_V):
        tl.store(blank_output + row, tl.sum(tl.where(column[None, :] == blank, outputs, 0.0), 1), mask=real)


@triton.jit(do_not_specialize=["first", "rows"])
def merge_kernel(
    highest, sums, tail, label_output, blank_output, row_target, blank_score, label_score, duration_score, norm,
    duration_norm, first, rows, tiles, blank, first_output, sigma,
    D: tl.constexpr, HAS_TAIL: tl.constexpr, TAIL: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """Each row's log-probabilities, out of what its tiles and its tail say."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = row < rows
    target = tl.load(row_target + first + row, mask=real, other=-1)
    most = tl.full((BLOCK,), NOWHERE, tl.float32)
    for tile in range(tiles):
        most = tl.maximum(most, tl.load(highest + tile * rows + row, mask=real, other=0.0))
    column = first_output + tl.arange(0, TAIL)
    if HAS_TAIL:
        place = tail + row[:, None] * TAIL + tl.arange(0, TAIL)[None, :]
        outputs = tl.load(place, mask=real[:, None], other=0.0)
        tokens = tl.where(column[None, :] <= blank, outputs, NOWHERE)
        most = tl.maximum(most, tl.max(tokens, 1))
    total = tl.zeros((BLOCK,), tl.float32)
    for tile in range(tiles):
        share = tl.load(highest + tile * rows + row, mask=real, other=0.0) - most
        total += tl.load(sums + tile * rows + row, mask=real, other=0.0) * tl.exp(share)
    label = tl.load(label_output + row, mask=real & (target >= 0) & (target < first_output), other=0.0)
    empty = tl.load(blank_output + row, mask=row < tl.where(blank < first_output, rows, 0), other=0.0)
    if HAS_TAIL:
        total += tl.sum(tl.exp(tokens - most[:, None]), 1)
        label += tl.sum(tl.where(column[None, :] == target[:, None], outputs, 0.0), 1)
        empty += tl.sum(tl.where(column[None, :] == blank, outputs, 0.0), 1)
    log_total = most + tl.log(total)
    tl.store(norm + first + row, log_total, mask=real)
    tl.store(blank_score + first + row, empty - log_total - sigma, mask=real)
    tl.store(label_score + first + row, tl.where(target >= 0, label - log_total - sigma, NOWHERE), mask=real)
    if D > 0:
        taken = (column[None, :] > blank) & (column[None, :] <= blank + D)
        steps = tl.where(taken, outputs, NOWHERE)
        longest = tl.max(steps, 1)
        log_steps = longest + tl.log(tl.sum(tl.exp(steps - longest[:, None]), 1))
        tl.store(duration_norm + first + row, log_steps, mask=real)
        place = duration_score + (first + row)[:, None] * D + (column - blank - 1)[None, :]
        tl.store(place, outputs - log_steps[:, None], mask=real[:, None] & taken)


@triton.jit(do_not_specialize=["first", "rows", "most_frames"])
def wrong_kernel(
    hidden, weight, bias, row_frame, row_cell, row_target, norm, blank_share, label_share, scale, wrong, bias_part,
    first, rows, tiles, blank, stride, most_frames,
    J: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
) -> None:  # fmt: skip
    """The gradient of a tile of outputs: how often a row is passed × what it says − what it should say."""
    tile = tl.program_id(0) % tiles
    part = tl.program_id(0) // tiles
    row = part * BLOCK_R + tl.arange(0, BLOCK_R)
    real = row < rows
    column = tile * BLOCK_V + tl.arange(0, BLOCK_V)
    outputs = _outputs(hidden, weight, bias, row, real, column, J, BLOCK_R, BLOCK_V, BLOCK_K, PRECISION)
    cell = tl.load(row_cell + first + row, mask=real, other=0)
    target = tl.load(row_target + first + row, mask=real, other=-1)
    factor = tl.load(scale + tl.load(row_frame + first + row, mask=real, other=0) // most_frames, mask=real, other=0.0)
    label = tl.load(label_share + cell, mask=real, other=0.0) * factor
    empty = tl.load(blank_share + cell, mask=real, other=0.0) * factor
    log_total = tl.load(norm + cell, mask=real, other=0.0)
    found = (label + empty)[:, None] * tl.exp2(outputs * LOG2E - (log_total * LOG2E)[:, None])
    found = tl.where(column[None, :] == target[:, None], found - label[:, None], found)
    found = tl.where(column[None, :] == blank, found - empty[:, None], found)
    tl.store(bias_part + part * stride + column, tl.sum(found, 0))
    place = wrong + row[:, None] * stride + column[None, :]
    tl.store(place, found.to(wrong.dtype.element_ty), mask=real[:, None])


@triton.jit(do_not_specialize=["first", "rows", "most_frames"])
def wrong_tail_kernel(
    tail, row_frame, row_cell, row_target, norm, duration_norm, blank_share, label_share, duration_share, scale, wrong,
    bias_part, first, rows, blank, stride, most_frames, first_output,
    D: tl.constexpr, TAIL: tl.constexpr, BLOCK_R: tl.constexpr,
) -> None:  # fmt: skip
    """The gradient of the tail's outputs: the last tokens, and the durations."""
    part = tl.program_id(0)
    row = part * BLOCK_R + tl.arange(0, BLOCK_R)
    real = row < rows
    column = first_output + tl.arange(0, TAIL)
    outputs = tl.load(tail + row[:, None] * TAIL + tl.arange(0, TAIL)[None, :], mask=real[:, None], other=0.0)
    cell = tl.load(row_cell + first + row, mask=real, other=0)
    target = tl.load(row_target + first + row, mask=real, other=-1)
    factor = tl.load(scale + tl.load(row_frame + first + row, mask=real, other=0) // most_frames, mask=real, other=0.0)
    label = tl.load(label_share + cell, mask=real, other=0.0) * factor
    empty = tl.load(blank_share + cell, mask=real, other=0.0) * factor
    log_total = tl.load(norm + cell, mask=real, other=0.0)
    said = tl.where((column <= blank)[None, :], tl.exp(outputs - log_total[:, None]), 0.0)
    found = (label + empty)[:, None] * said
    found = tl.where(column[None, :] == target[:, None], found - label[:, None], found)
    found = tl.where(column[None, :] == blank, found - empty[:, None], found)
    if D > 0:
        steps = (column > blank) & (column <= blank + D)
        place = duration_share + cell[:, None] * D + (column - blank - 1)[None, :]
        taken = tl.load(place, mask=real[:, None] & steps[None, :], other=0.0) * factor[:, None]
        log_steps = tl.load(duration_norm + cell, mask=real, other=0.0)
        share = tl.exp(tl.where(steps[None, :], outputs - log_steps[:, None], NOWHERE))
        found = tl.where(steps[None, :], tl.sum(taken, 1)[:, None] * share - taken, found)
    inside = column < stride
    tl.store(bias_part + part * stride + column, tl.sum(found, 0), mask=inside)
    place = wrong + row[:, None] * stride + column[None, :]
    tl.store(place, found.to(wrong.dtype.element_ty), mask=real[:, None] & inside[None, :])


@triton.jit(do_not_specialize=["first", "first_row", "most_frames", "most_labels"])
def inner_kernel(
    blocks, encoded, predicted, inner, scale, encoded_gradient, predicted_part, first, first_row, most_frames,
    most_labels, J: tl.constexpr, ACTIVATION: tl.constexpr, FRAMES: tl.constexpr, LABELS: tl.constexpr,
    BLOCK_J: tl.constexpr,
) -> None:  # fmt: skip
    """Through the activation of a block's rows, summed over labels for each frame and over its frames for each label.

    `inner` (rows, J) is the gradient of the hidden values; each block has its own rows of `predicted_part`.
    """
    block = blocks + (first + tl.program_id(0)) * 7
    utterance = tl.load(block)
    first_frame = tl.load(block + 1)
    frames = tl.load(block + 2)
    first_label = tl.load(block + 3)
    labels = tl.load(block + 4)
    offset = (tl.load(block + 5) - first_row).to(tl.int64)
    part = tl.load(block + 6).to(tl.int64)
    factor = tl.load(scale)
    j = tl.program_id(1) * BLOCK_J + tl.arange(0, BLOCK_J)
    frame = tl.arange(0, FRAMES)
    near = (frame < frames)[:, None] & (j < J)[None, :]
    place = (utterance * most_frames + first_frame + frame).to(tl.int64)[:, None] * J + j[None, :]
    heard = tl.load(encoded + place, mask=near, other=0.0).to(tl.float32)
    summed = tl.zeros((FRAMES, BLOCK_J), tl.float32)
    for start in range(0, labels, LABELS):
        label = start + tl.arange(0, LABELS)
        inside = (label < labels)[:, None] & (j < J)[None, :]
        spot = (utterance * most_labels + first_label + label).to(tl.int64)[:, None] * J + j[None, :]
        said = tl.load(predicted + spot, mask=inside, other=0.0).to(tl.float32)
        row = offset + frame[:, None] * labels + label[None, :]
        both = near[:, None, :] & inside[None, :, :]
        gradient = tl.load(inner + row[:, :, None] * J + j[None, None, :], mask=both, other=0.0).to(tl.float32)
        gradient = gradient * _slope(heard[:, None, :] + said[None, :, :], ACTIVATION)
        summed += tl.sum(gradient, 1)
        tl.store(predicted_part + (part + label)[:, None] * J + j[None, :], tl.sum(gradient, 0), mask=inside)
    tl.store(encoded_gradient + place, (summed * factor).to(encoded_gradient.dtype.element_ty), mask=near)


@triton.jit(do_not_specialize=["most_labels"])
def predicted_kernel(
    blocks, first_block, scale, predicted_part, predicted_gradient, most_labels,
    J: tl.constexpr, BLOCK_U: tl.constexpr, BLOCK_J: tl.constexpr,
) -> None:  # fmt: skip
    """The gradient of `predicted`: the sum over an utterance's blocks, in their order."""
    utterance = tl.program_id(0)
    label = tl.program_id(1) * BLOCK_U + tl.arange(0, BLOCK_U)
    j = tl.program_id(2) * BLOCK_J + tl.arange(0, BLOCK_J)
    summed = tl.zeros((BLOCK_U, BLOCK_J), tl.float32)
    for index in range(tl.load(first_block + utterance), tl.load(first_block + utterance + 1)):
        first_label = tl.load(blocks + index * 7 + 3)
        labels = tl.load(blocks + index * 7 + 4)
        inside = ((label >= first_label) & (label < first_label + labels))[:, None] & (j < J)[None, :]
        place = (tl.load(blocks + index * 7 + 6).to(tl.int64) + label - first_label)[:, None] * J + j[None, :]
        summed += tl.load(predicted_part + place, mask=inside, other=0.0)
    place = (utterance * most_labels + label).to(tl.int64)[:, None] * J + j[None, :]
    value = (summed * tl.load(scale)).to(predicted_gradient.dtype.element_ty)
    tl.store(predicted_gradient + place, value, mask=(label < most_labels)[:, None] & (j < J)[None, :])
