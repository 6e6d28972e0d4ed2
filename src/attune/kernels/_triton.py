"""The Triton kernels of the transducer loss; `_fused.py` launches them.

Cells are packed: an utterance's cells are contiguous, frame by frame, U + 1 cells for each frame. A pass over the joint
network processes some cells as rows; `row_frame`, `row_label`, `row_cell` and `row_target` locate each row. Outputs are
split in two: full tiles of columns, and a narrow tail (the remainder, which often has the blank, and the durations), so
that no product needs a mask.

There are no atomic adds: results are bit-identical each time. Values that change from batch to batch are not compiled
in (integers by `do_not_specialize`, offsets instead of pointers into a buffer): a kernel is compiled once.
"""

# A kernel's arguments are pointers and numbers of the compiler's own types.
# mypy: disable-error-code="no-untyped-def,untyped-decorator"
# ruff: noqa: ANN001
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
NEG_INF = tl.constexpr(float("-inf"))


@triton.jit
def _activate(values, ACTIVATION: tl.constexpr) -> tl.tensor:
    if ACTIVATION == "relu":
        return tl.where(values < 0, 0.0, values)  # a maximum would turn NaN into zero
    elif ACTIVATION == "sigmoid":
        return 1.0 / (1.0 + tl.exp(-values))
    else:
        return 2.0 / (1.0 + tl.exp(-2.0 * values)) - 1.0


@triton.jit
def _activation_grad(values, ACTIVATION: tl.constexpr) -> tl.tensor:
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
    """The frame and label in the padded batch, the cell and the next label of each row of each block."""
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
    has_label = real & (label < width - 1)
    target = tl.load(targets + utterance * (most_labels - 1) + label, mask=has_label, other=-1)
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
        predicted_value = tl.load(predicted + label[:, None] * J + k[None, :], mask=inside, other=0.0).to(tl.float32)
        encoded_value = tl.load(encoded + frame[:, None] * J + k[None, :], mask=inside, other=0.0).to(tl.float32)
        value = _activate(encoded_value + predicted_value, ACTIVATION).to(hidden.dtype.element_ty)
        tl.store(hidden + row[:, None].to(tl.int64) * J + k[None, :], value, mask=inside)
        if HAS_TAIL:
            part = tl.load(weight + column[None, :] * J + k[:, None], mask=(k < J)[:, None], other=0.0)
            # Beyond J the activation of zero may not be zero, but the weights are.
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
def logsumexp_kernel(
    hidden, weight, bias, row_target, highest, sums, label_output, blank_output, first, rows, tiles, blank,
    J: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
) -> None:  # fmt: skip
    """Of a tile of outputs: each row's maximum, sum of exponentials, and label's and blank's output if in this tile.

    `highest` and `sums` are (column tiles, rows). Programs that share rows run next to each other, for the cache.
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
    """Each row's log-probabilities, merged from its tiles and its tail."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = row < rows
    target = tl.load(row_target + first + row, mask=real, other=-1)
    most = tl.full((BLOCK,), NEG_INF, tl.float32)
    for tile in range(tiles):
        most = tl.maximum(most, tl.load(highest + tile * rows + row, mask=real, other=0.0))
    column = first_output + tl.arange(0, TAIL)
    if HAS_TAIL:
        place = tail + row[:, None] * TAIL + tl.arange(0, TAIL)[None, :]
        outputs = tl.load(place, mask=real[:, None], other=0.0)
        tokens = tl.where(column[None, :] <= blank, outputs, NEG_INF)
        most = tl.maximum(most, tl.max(tokens, 1))
    total = tl.zeros((BLOCK,), tl.float32)
    for tile in range(tiles):
        difference = tl.load(highest + tile * rows + row, mask=real, other=0.0) - most
        total += tl.load(sums + tile * rows + row, mask=real, other=0.0) * tl.exp(difference)
    label = tl.load(label_output + row, mask=real & (target >= 0) & (target < first_output), other=0.0)
    blank_part = tl.load(blank_output + row, mask=row < tl.where(blank < first_output, rows, 0), other=0.0)
    if HAS_TAIL:
        total += tl.sum(tl.exp(tokens - most[:, None]), 1)
        label += tl.sum(tl.where(column[None, :] == target[:, None], outputs, 0.0), 1)
        blank_part += tl.sum(tl.where(column[None, :] == blank, outputs, 0.0), 1)
    log_total = most + tl.log(total)
    tl.store(norm + first + row, log_total, mask=real)
    tl.store(blank_score + first + row, blank_part - log_total - sigma, mask=real)
    tl.store(label_score + first + row, tl.where(target >= 0, label - log_total - sigma, NEG_INF), mask=real)
    if D > 0:
        taken = (column[None, :] > blank) & (column[None, :] <= blank + D)
        steps = tl.where(taken, outputs, NEG_INF)
        longest = tl.max(steps, 1)
        log_steps = longest + tl.log(tl.sum(tl.exp(steps - longest[:, None]), 1))
        tl.store(duration_norm + first + row, log_steps, mask=real)
        place = duration_score + (first + row)[:, None] * D + (column - blank - 1)[None, :]
        tl.store(place, outputs - log_steps[:, None], mask=real[:, None] & taken)


@triton.jit(do_not_specialize=["first", "rows", "most_frames"])
def output_grad_kernel(
    hidden, weight, bias, row_frame, row_cell, row_target, norm, blank_posterior, label_posterior, scale, output_grad,
    bias_part, first, rows, tiles, blank, stride, most_frames,
    J: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
) -> None:  # fmt: skip
    """The gradient of a tile of outputs: softmax × the row's occupancy − the occupancy of each arc."""
    tile = tl.program_id(0) % tiles
    part = tl.program_id(0) // tiles
    row = part * BLOCK_R + tl.arange(0, BLOCK_R)
    real = row < rows
    column = tile * BLOCK_V + tl.arange(0, BLOCK_V)
    outputs = _outputs(hidden, weight, bias, row, real, column, J, BLOCK_R, BLOCK_V, BLOCK_K, PRECISION)
    cell = tl.load(row_cell + first + row, mask=real, other=0)
    target = tl.load(row_target + first + row, mask=real, other=-1)
    factor = tl.load(scale + tl.load(row_frame + first + row, mask=real, other=0) // most_frames, mask=real, other=0.0)
    label = tl.load(label_posterior + cell, mask=real, other=0.0) * factor
    blank_part = tl.load(blank_posterior + cell, mask=real, other=0.0) * factor
    log_total = tl.load(norm + cell, mask=real, other=0.0)
    found = (label + blank_part)[:, None] * tl.exp2(outputs * LOG2E - (log_total * LOG2E)[:, None])
    found = tl.where(column[None, :] == target[:, None], found - label[:, None], found)
    found = tl.where(column[None, :] == blank, found - blank_part[:, None], found)
    tl.store(bias_part + part * stride + column, tl.sum(found, 0))
    place = output_grad + row[:, None].to(tl.int64) * stride + column[None, :]
    tl.store(place, found.to(output_grad.dtype.element_ty), mask=real[:, None])


@triton.jit(do_not_specialize=["first", "rows", "most_frames"])
def output_grad_tail_kernel(
    tail, row_frame, row_cell, row_target, norm, duration_norm, blank_posterior, label_posterior, duration_posterior,
    scale, output_grad, bias_part, first, rows, blank, stride, most_frames, first_output,
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
    label = tl.load(label_posterior + cell, mask=real, other=0.0) * factor
    blank_part = tl.load(blank_posterior + cell, mask=real, other=0.0) * factor
    log_total = tl.load(norm + cell, mask=real, other=0.0)
    probability = tl.where((column <= blank)[None, :], tl.exp(outputs - log_total[:, None]), 0.0)
    found = (label + blank_part)[:, None] * probability
    found = tl.where(column[None, :] == target[:, None], found - label[:, None], found)
    found = tl.where(column[None, :] == blank, found - blank_part[:, None], found)
    if D > 0:
        steps = (column > blank) & (column <= blank + D)
        place = duration_posterior + cell[:, None] * D + (column - blank - 1)[None, :]
        taken = tl.load(place, mask=real[:, None] & steps[None, :], other=0.0) * factor[:, None]
        log_steps = tl.load(duration_norm + cell, mask=real, other=0.0)
        softmax = tl.exp(tl.where(steps[None, :], outputs - log_steps[:, None], NEG_INF))
        found = tl.where(steps[None, :], tl.sum(taken, 1)[:, None] * softmax - taken, found)
    inside = column < stride
    tl.store(bias_part + part * stride + column, tl.sum(found, 0), mask=inside)
    place = output_grad + row[:, None].to(tl.int64) * stride + column[None, :]
    tl.store(place, found.to(output_grad.dtype.element_ty), mask=real[:, None] & inside[None, :])


@triton.jit(do_not_specialize=["first", "first_row", "most_frames", "most_labels"])
def inner_kernel(
    blocks, encoded, predicted, inner, scale, encoded_gradient, predicted_part, first, first_row, most_frames,
    most_labels, J: tl.constexpr, ACTIVATION: tl.constexpr, FRAMES: tl.constexpr, LABELS: tl.constexpr,
    BLOCK_J: tl.constexpr,
) -> None:  # fmt: skip
    """The activation's backward of a block's rows, summed over labels for each frame and over frames for each label.

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
    encoded_value = tl.load(encoded + place, mask=near, other=0.0).to(tl.float32)
    summed = tl.zeros((FRAMES, BLOCK_J), tl.float32)
    for start in range(0, labels, LABELS):
        label = start + tl.arange(0, LABELS)
        inside = (label < labels)[:, None] & (j < J)[None, :]
        spot = (utterance * most_labels + first_label + label).to(tl.int64)[:, None] * J + j[None, :]
        predicted_value = tl.load(predicted + spot, mask=inside, other=0.0).to(tl.float32)
        row = offset + frame[:, None] * labels + label[None, :]
        both = near[:, None, :] & inside[None, :, :]
        gradient = tl.load(inner + row[:, :, None] * J + j[None, None, :], mask=both, other=0.0).to(tl.float32)
        gradient = gradient * _activation_grad(encoded_value[:, None, :] + predicted_value[None, :, :], ACTIVATION)
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
