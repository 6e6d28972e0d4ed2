"""The Triton kernels that walk the lattice: how probable it is to reach each cell, and the end from it.

One program walks one utterance in one direction, diagonal by diagonal; a diagonal's cells do not depend on one another.
Values are float64 in global memory, where the program's threads find each other's after a barrier.
"""

# A kernel's arguments are pointers and numbers of the compiler's own types.
# mypy: disable-error-code="no-untyped-def,untyped-decorator"
# ruff: noqa: ANN001
import triton
import triton.language as tl

NOWHERE = tl.constexpr(float("-inf"))


@triton.jit
def _score(
    blank_score, label_score, duration_score, cell, index, real, SAYS: tl.constexpr, D: tl.constexpr
) -> tl.tensor:
    """The log-probability of an arc from each cell."""
    if SAYS:
        score = tl.load(label_score + cell, mask=real, other=NOWHERE).to(tl.float64)
    else:
        score = tl.load(blank_score + cell, mask=real, other=NOWHERE).to(tl.float64)
    if D > 0:
        score += tl.load(duration_score + cell * D + index, mask=real, other=0.0).to(tl.float64)
    return score


@triton.jit
def _origin(
    before, blank_score, label_score, duration_score, start, frames, width, frame, label, step, index,
    SAYS: tl.constexpr, D: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """How probable it is to come to a cell by one arc, of `step` frames; a blank's must be some."""
    origin = frame - step
    said = label - SAYS
    # A diagonal goes on beyond the last frame; what lies there is another utterance's, or nobody's memory.
    real = (origin >= 0) & (frame < frames) & (said >= 0) & (label < width)
    if not SAYS:
        real = real & (origin < frame)
    cell = start + origin * width + said
    reached = tl.load(before + cell, mask=real, other=NOWHERE)
    return reached + _score(blank_score, label_score, duration_score, cell, index, real, SAYS, D)


@triton.jit
def _goal(
    after, blank_score, label_score, duration_score, start, frames, width, frame, label, step, index,
    SAYS: tl.constexpr, D: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """How probable it is to reach the end by one arc from a cell. Only a blank may step past the last frame."""
    real = (frame >= 0) & (frame < frames) & (label < width)
    goal = frame + step
    said = label + SAYS
    beyond = tl.load(after + start + goal * width + said, mask=real & (goal < frames) & (said < width), other=NOWHERE)
    if not SAYS:
        real = real & (goal > frame)
        beyond = tl.where((goal == frames) & (label == width - 1), 0.0, beyond)
    return beyond + _score(
        blank_score, label_score, duration_score, start + frame * width + label, index, real, SAYS, D
    )


@triton.jit
def _log_add(a, b) -> tl.tensor:
    most = tl.maximum(a, b)
    safe = tl.where(most == NOWHERE, 0.0, most)
    return tl.where(most == NOWHERE, most, safe + tl.log(tl.exp(a - safe) + tl.exp(b - safe)))


@triton.jit(do_not_specialize=["batch"])
def walk_kernel(
    blank_score, label_score, duration_score, before, after, totals, starts, lengths, widths, durations, batch,
    D: tl.constexpr, BLOCK_U: tl.constexpr,
) -> None:  # fmt: skip
    """Fill `before` (programs of the first half) and `after` and the totals (B,) (those of the second half)."""
    utterance = tl.program_id(0) % batch
    start = tl.load(starts + utterance)
    frames = tl.load(lengths + utterance)
    width = tl.load(widths + utterance)
    label = tl.arange(0, BLOCK_U)
    if tl.program_id(0) < batch:
        for diagonal in range(frames + width - 1):
            frame = diagonal - label
            if D == 0:
                stays = _origin(
                    before, blank_score, label_score, duration_score, start, frames, width, frame, label, 1, 0, 0, D
                )
                says = _origin(
                    before, blank_score, label_score, duration_score, start, frames, width, frame, label, 0, 0, 1, D
                )
                found = _log_add(stays, says)
            else:
                found = tl.full((BLOCK_U,), NOWHERE, tl.float64)
                for index in tl.static_range(D):
                    step = tl.load(durations + index)
                    stays = _origin(
                        before, blank_score, label_score, duration_score, start, frames, width, frame, label, step,
                        index, 0, D,
                    )  # fmt: skip
                    says = _origin(
                        before, blank_score, label_score, duration_score, start, frames, width, frame, label, step,
                        index, 1, D,
                    )  # fmt: skip
                    found = _log_add(found, _log_add(stays, says))
            found = tl.where((frame == 0) & (label == 0), 0.0, found)
            real = (frame >= 0) & (frame < frames) & (label < width)
            tl.store(before + start + frame * width + label, found, mask=real)
            tl.debug_barrier()
    else:
        for back in range(frames + width - 1):
            frame = frames + width - 2 - back - label
            if D == 0:
                stays = _goal(
                    after, blank_score, label_score, duration_score, start, frames, width, frame, label, 1, 0, 0, D
                )
                says = _goal(
                    after, blank_score, label_score, duration_score, start, frames, width, frame, label, 0, 0, 1, D
                )
                found = _log_add(stays, says)
            else:
                found = tl.full((BLOCK_U,), NOWHERE, tl.float64)
                for index in tl.static_range(D):
                    step = tl.load(durations + index)
                    stays = _goal(
                        after, blank_score, label_score, duration_score, start, frames, width, frame, label, step,
                        index, 0, D,
                    )  # fmt: skip
                    says = _goal(
                        after, blank_score, label_score, duration_score, start, frames, width, frame, label, step,
                        index, 1, D,
                    )  # fmt: skip
                    found = _log_add(found, _log_add(stays, says))
            real = (frame >= 0) & (frame < frames) & (label < width)
            tl.store(after + start + frame * width + label, found, mask=real)
            tl.debug_barrier()
        tl.store(totals + utterance, tl.load(after + start, mask=frames > 0, other=NOWHERE))


@triton.jit(do_not_specialize=["cells", "most_frames", "most_labels"])
def shares_kernel(
    row_frame, row_label, blank_score, label_score, duration_score, before, after, totals, starts, lengths, widths,
    durations, blank_share, label_share, duration_share, cells, most_frames, most_labels, emphasis,
    D: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """What share of its target's probability takes each cell's blank, label and durations."""
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
    # A target that no path spells has no gradient.
    reached = tl.load(before + cell, mask=real, other=NOWHERE) - tl.where(total == NOWHERE, float("inf"), total)
    empty = tl.zeros((BLOCK,), tl.float32)
    says = tl.zeros((BLOCK,), tl.float32)
    if D == 0:
        ahead = _goal(after, blank_score, label_score, duration_score, start, frames, width, frame, label, 1, 0, 0, D)
        empty = tl.exp(reached + ahead).to(tl.float32)
        ahead = _goal(after, blank_score, label_score, duration_score, start, frames, width, frame, label, 0, 0, 1, D)
        says = (tl.exp(reached + ahead) * emphasis).to(tl.float32)
    for index in tl.static_range(D):
        step = tl.load(durations + index)
        ahead = _goal(
            after, blank_score, label_score, duration_score, start, frames, width, frame, label, step, index, 0, D
        )
        stays = tl.exp(reached + ahead).to(tl.float32)
        ahead = _goal(
            after, blank_score, label_score, duration_score, start, frames, width, frame, label, step, index, 1, D
        )
        spoken = (tl.exp(reached + ahead) * emphasis).to(tl.float32)
        tl.store(duration_share + cell * D + index, stays + spoken, mask=real)
        empty += stays
        says += spoken
    tl.store(blank_share + cell, empty, mask=real)
    tl.store(label_share + cell, says, mask=real)


@triton.jit
def band_kernel(
    blocks, blank_share, label_share, bands, negligible, BLOCK_U: tl.constexpr
) -> None:  # fmt: skip
    """The first and the last label that paths really pass in each block of frames, of a pass over all cells."""
    block = blocks + tl.program_id(0) * 7
    frames = tl.load(block + 2)
    labels = tl.load(block + 4)
    offset = tl.load(block + 5)
    label = tl.arange(0, BLOCK_U)
    most = tl.zeros((BLOCK_U,), tl.float32)
    for frame in range(frames):
        cell = offset + frame * labels + label
        empty = tl.load(blank_share + cell, mask=label < labels, other=0.0)
        most = tl.maximum(most, empty + tl.load(label_share + cell, mask=label < labels, other=0.0))
    passed = (most > negligible) & (label < labels)
    tl.store(bands + tl.program_id(0) * 2, tl.min(tl.where(passed, label, BLOCK_U), 0))
    tl.store(bands + tl.program_id(0) * 2 + 1, tl.max(tl.where(passed, label, -1), 0))
