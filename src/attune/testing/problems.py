"""What a check says when a promise is not kept."""

from collections.abc import Iterable, Iterator

from torch import Tensor, nn


class CheckFailed(AssertionError):
    """Promises that are not kept: a sentence for each, with how large the difference is."""


def require_none(subject: str, problems: Iterable[str]) -> None:
    """Raise CheckFailed with all the problems there are."""
    found = list(problems)
    if found:
        raise CheckFailed("\n".join([f"{subject} breaks {len(found)} promise(s):", *(f"- {each}" for each in found)]))


def differences(what: str, expected: Tensor, actual: Tensor, tolerance: float) -> Iterator[str]:
    """A sentence when two tensors differ by more than `tolerance` (relative above 1), or in shape."""
    if expected.shape != actual.shape:
        yield f"{what}: the shape changes from {tuple(expected.shape)} to {tuple(actual.shape)}"
        return
    difference = (actual.double() - expected.double()).abs()
    # Not "greater than": NaN is a difference too.
    if not bool((difference <= tolerance * expected.double().abs().clamp(min=1)).all()):
        yield f"{what}: it changes by up to {float(difference.max()):.2g}, where {tolerance:.2g} is allowed"


def without_gradient(module: nn.Module) -> Iterator[str]:
    """A sentence for each trainable parameter that the last backward pass did not reach."""
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            continue
        if parameter.grad is None or not parameter.grad.any():
            yield f"gradients: the trainable parameter {name} gets none"
        elif not parameter.grad.isfinite().all():
            yield f"gradients: the gradient of {name} is not finite"
