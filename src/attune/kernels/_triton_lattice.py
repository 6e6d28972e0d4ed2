"""Forward-backward over the transducer lattice in Triton: alpha, beta and the posteriors of the arcs.

One program processes one utterance in one direction, diagonal by diagonal; cells of a diagonal are independent. Values
are float64 in global memory, visible to all threads of the program after a barrier.
"""

# A kernel's arguments are pointers and numbers of the compiler's own types.
# mypy: disable-error-code="no-untyped-def,untyped-decorator"
# ruff: noqa: ANN001
import triton
import triton.language as tl

NEG_INF = tl.constexpr(float("-inf"))


@triton.jit
def _score(
    blank_score, label_score, duration_score, cell, index, real, EMITS: tl.constexpr, D: tl.constexpr
) -> tl.tensor:
    """The log-probability of an arc from each cell."""
    if EMITS:
        score = tl.load(label_score + cell, mask=real, other=NEG_INF).to(tl.float64)
    else:
        score = tl.load(blank_score + cell, mask=real, other=NEG_INF).to(tl.float64)
    if D > 0:
        score += tl.load(duration_score + cell * D + index, mask=real, other=0.0).to(tl.float64)
    return score


@triton.jit
def _origin(
    alpha, blank_score, label_score, duration_score, start, frames, width, frame, label, step, index,
    EMITS: tl.constexpr, D: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """The log-probability of reaching a cell by one arc of `step` frames; a blank advances at least one."""
    origin = frame - step
    origin_label = label - EMITS
    # A diagonal extends beyond the last frame, into another utterance's cells or out of bounds.
    real = (origin >= 0) & (frame < frames) & (origin_label >= 0) & (label < width)
    if not EMITS:
        real = real & (origin < frame)
    cell = start + origin * width + origin_label
    reached = tl.load(alpha + cell, mask=real, other=NEG_INF)
    return reached + _score(blank_score, label_score, duration_score, cell, index, real, EMITS, D)


@triton.jit
def _goal(
    beta, blank_score, label_score, duration_score, start, frames, width, frame, label, step, index,
    EMITS: tl.constexpr, D: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """The log-probability of reaching the end by one arc from a cell. Only a blank may step past the last frame."""
    real = (frame >= 0) & (frame < frames) & (label < width)
    goal = frame + step
    goal_label = label + EMITS
    if not EMITS:
        real = real & (goal > frame)  # of a cell's own beta nothing is there yet
    inside = real & (goal < frames) & (goal_label < width)
    beyond = tl.load(beta + start + goal * width + goal_label, mask=inside, other=NEG_INF)
    if not EMITS:
        beyond = tl.where((goal == frames) & (label == width - 1), 0.0, beyond)
    return beyond + _score(
        blank_score, label_score, duration_score, start + frame * width + label, index, real, EMITS, D
    )


@triton.jit
def _log_add(a, b) -> tl.tensor:
    most = tl.maximum(a, b)
    safe = tl.where(most == NEG_INF, 0.0, most)
    return tl.where(most == NEG_INF, most, safe + tl.log(tl.exp(a - safe) + tl.exp(b - safe)))


@triton.jit(do_not_specialize=["batch"])
def alpha_beta_kernel(
    blank_score, label_score, duration_score, alpha, beta, totals, starts, lengths, widths, durations, batch,
    D: tl.constexpr, BLOCK_U: tl.constexpr,
) -> None:  # fmt: skip
    """Fill `alpha` (first half of the programs), and `beta` and the totals (B,) (second half)."""
    utterance = tl.program_id(0) % batch
    start = tl.load(starts + utterance)
    frames = tl.load(lengths + utterance)
    width = tl.load(widths + utterance)
    label = tl.arange(0, BLOCK_U)
    if tl.program_id(0) < batch:
        for diagonal in range(frames + width - 1):
            frame = diagonal - label
            if D == 0:
                by_blank = _origin(
                    alpha, blank_score, label_score, duration_score, start, frames, width, frame, label, 1, 0, 0, D
                )
                by_label = _origin(
                    alpha, blank_score, label_score, duration_score, start, frames, width, frame, label, 0, 0, 1, D
                )
                found = _log_add(by_blank, by_label)
            else:
                found = tl.full((BLOCK_U,), NEG_INF, tl.float64)
                for index in tl.static_range(D):
                    step = tl.load(durations + index)
                    by_blank = _origin(
                        alpha, blank_score, label_score, duration_score, start, frames, width, frame, label, step,
                        index, 0, D,
                    )  # fmt: skip
                    by_label = _origin(
                        alpha, blank_score, label_score, duration_score, start, frames, width, frame, label, step,
                        index, 1, D,
                    )  # fmt: skip
                    found = _log_add(found, _log_add(by_blank, by_label))
            found = tl.where((frame == 0) & (label == 0), 0.0, found)
            real = (frame >= 0) & (frame < frames) & (label < width)
            tl.store(alpha + start + frame * width + label, found, mask=real)
            tl.debug_barrier()
    else:
        for back in range(frames + width - 1):
            frame = frames + width - 2 - back - label
            if D == 0:
                by_blank = _goal(
                    beta, blank_score, label_score, duration_score, start, frames, width, frame, label, 1, 0, 0, D
                )
                by_label = _goal(
                    beta, blank_score, label_score, duration_score, start, frames, width, frame, label, 0, 0, 1, D
                )
                found = _log_add(by_blank, by_label)
            else:
                found = tl.full((BLOCK_U,), NEG_INF, tl.float64)
                for index in tl.static_range(D):
                    step = tl.load(durations + index)
                    by_blank = _goal(
                        beta, blank_score, label_score, duration_score, start, frames, width, frame, label, step,
                        index, 0, D,
                    )  # fmt: skip
                    by_label = _goal(
                        beta, blank_score, label_score, duration_score, start, frames, width, frame, label, step,
                        index, 1, D,
                    )  # fmt: skip
                    found = _log_add(found, _log_add(by_blank, by_label))
            real = (frame >= 0) & (frame < frames) & (label < width)
            tl.store(beta + start + frame * width + label, found, mask=real)
            tl.debug_barrier()
        tl.store(totals + utterance, tl.load(beta + start, mask=frames > 0, other=NEG_INF))


@triton.jit(do_not_specialize=["cells", "most_frames", "most_labels"])
def posteriors_kernel(
    row_frame, row_label, blank_score, label_score, duration_score, alpha, beta, totals, starts, lengths, widths,
    durations, blank_posterior, label_posterior, duration_posterior, cells, most_frames, most_labels, emphasis,
    D: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """The posterior of each cell's blank, label and durations."""
    cell = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = cell < cells
    place = tl.load(row_frame + cell, mask=real, other=0)
    utterance = place // most_frames
    frame = place % most_frames
    label = tl.load(row_label + cell, mask=real, other=0) % most_labels
    start = tl.load(starts + utterance, mask=real, other=0)
    frames = tl.load(lengths + utterance, mask=real, other=0)
    width = tl.load(widths + utterance, mask=real, other=0)
    total = tl.load(totals + utterance, mask=real, other=0.0)
    # A target without any alignment has no gradient.
    reached = tl.load(alpha + cell, mask=real, other=NEG_INF) - tl.where(total == NEG_INF, float("inf"), total)
    by_blank = tl.zeros((BLOCK,), tl.float32)
    by_label = tl.zeros((BLOCK,), tl.float32)
    if D == 0:
        ahead = _goal(beta, blank_score, label_score, duration_score, start, frames, width, frame, label, 1, 0, 0, D)
        by_blank = tl.exp(reached + ahead).to(tl.float32)
        ahead = _goal(beta, blank_score, label_score, duration_score, start, frames, width, frame, label, 0, 0, 1, D)
        by_label = (tl.exp(reached + ahead) * emphasis).to(tl.float32)
    for index in tl.static_range(D):
        step = tl.load(durations + index)
        ahead = _goal(
            beta, blank_score, label_score, duration_score, start, frames, width, frame, label, step, index, 0, D
        )
        blank_part = tl.exp(reached + ahead).to(tl.float32)
        ahead = _goal(
            beta, blank_score, label_score, duration_score, start, frames, width, frame, label, step, index, 1, D
        )
        label_part = (tl.exp(reached + ahead) * emphasis).to(tl.float32)
        tl.store(duration_posterior + cell * D + index, blank_part + label_part, mask=real)
        by_blank += blank_part
        by_label += label_part
    tl.store(blank_posterior + cell, by_blank, mask=real)
    tl.store(label_posterior + cell, by_label, mask=real)


@triton.jit
def band_kernel(
    blocks, blank_posterior, label_posterior, bands, negligible, BLOCK_U: tl.constexpr
) -> None:  # fmt: skip
    """The first and last label with a non-negligible occupancy in each block of frames."""
    block = blocks + tl.program_id(0) * 7
    frames = tl.load(block + 2)
    labels = tl.load(block + 4)
    offset = tl.load(block + 5)
    label = tl.arange(0, BLOCK_U)
    most = tl.zeros((BLOCK_U,), tl.float32)
    for frame in range(frames):
        cell = offset + frame * labels + label
        blank_part = tl.load(blank_posterior + cell, mask=label < labels, other=0.0)
        most = tl.maximum(most, blank_part + tl.load(label_posterior + cell, mask=label < labels, other=0.0))
    passed = (most > negligible) & (label < labels)
    tl.store(bands + tl.program_id(0) * 2, tl.min(tl.where(passed, label, BLOCK_U), 0))
    tl.store(bands + tl.program_id(0) * 2 + 1, tl.max(tl.where(passed, label, -1), 0))
