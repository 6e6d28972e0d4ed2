"""The layers of an upstream as one sequence of features: one layer, or a learned softmax-weighted sum of several."""

# B batch, F frames, D width
from collections.abc import Iterable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attune.errors import ConfigError


class LayerFeaturizer(nn.Module):
    """Selects layers and adds them up. The weights begin equal, as in S3PRL.

    Layers are taken one by one, and none is kept that nothing needs: in training the weights' gradient needs each,
    in the precision it was computed in; otherwise one at a time is there.
    """

    def __init__(self, widths: tuple[int, ...], chosen: tuple[int, ...], normalizes: bool) -> None:
        super().__init__()
        self.chosen = chosen
        self.normalizes = normalizes
        self.width = widths[chosen[0]]
        if any(widths[index] != self.width for index in chosen):
            raise ConfigError(
                f"model.layers: a weighted sum needs layers of one width; these have "
                f"{', '.join(str(widths[index]) for index in chosen)}. Choose others."
            )
        if len(chosen) > 1:
            self.weights = nn.Parameter(torch.zeros(len(chosen)))

    def forward(self, layers: Iterable[Tensor]) -> Tensor:
        """Features (B, F, D) of all layers, the one nearest the input first."""
        return self.combine(self.pick(layers))

    def pick(self, layers: Iterable[Tensor]) -> Iterator[Tensor]:
        """The chosen ones; none is asked for beyond the last of them."""
        for index, layer in enumerate(layers):
            if index in self.chosen:
                yield layer
            if index == self.chosen[-1]:
                return

    def combine(self, chosen: Iterable[Tensor]) -> Tensor:
        """Features (B, F, D) of the chosen layers."""
        total: Tensor | None = None
        shares = self.weights.softmax(0) if len(self.chosen) > 1 else None
        for place, layer in enumerate(chosen):
            layer = F.layer_norm(layer, layer.shape[-1:]) if self.normalizes else layer
            total = _added(total, layer, None if shares is None else shares[place])
        if total is None:
            raise ConfigError(f"model.layers: the upstream has no layer {self.chosen[0]}.")
        return total

    @property
    def is_fixed(self) -> bool:
        """Whether the sum will always be the same, as its weights do not learn."""
        return len(self.chosen) > 1 and not self.weights.requires_grad

    def layer_weights(self) -> dict[int, float]:
        """How much each layer counts, by its number; all together 1."""
        if len(self.chosen) == 1:
            return {self.chosen[0]: 1.0}
        return dict(zip(self.chosen, self.weights.detach().float().softmax(0).tolist(), strict=True))


def _added(total: Tensor | None, layer: Tensor, share: Tensor | None) -> Tensor:
    """The next sum; many half-precision layers add up in float32."""
    if share is None:
        return layer
    if total is None:
        return share * (layer.float() if layer.dtype in (torch.bfloat16, torch.float16) else layer)
    return torch.addcmul(total, layer, share)


def chosen_layers(selection: int | tuple[int, ...] | None, count: int) -> tuple[int, ...]:
    """Layers by number from the input, in order; negative ones count from the output. None: all."""
    if selection is None:
        return tuple(range(count))
    numbers = (selection,) if isinstance(selection, int) else selection
    wrong = [number for number in numbers if not -count <= number < count]
    if wrong:
        raise ConfigError(
            f"model.layers: there is no layer {wrong[0]}. This upstream has {count}, numbered 0 to {count - 1} from "
            "the input on; negative numbers count from the output."
        )
    return tuple(sorted({number % count for number in numbers}))
