"""8-bit AdamW with the kernels of bitsandbytes, for those who ask for it by name.

The package is asked for its update alone. What is remembered is ours: plain tensors beside each parameter, which are
saved and loaded like all others and go on in the same bits.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from attune.training.adam8 import BLOCK, Adam8
from attune.training.packages import import_optional

MISSING = (
    "optimizer.name=bitsandbytes needs bitsandbytes, which is not installed. Run: pip install "
    '"attune-speech[bnb]", or use adamw8bit.'
)


class BitsandbytesAdam8(Adam8):
    """Small tensors are treated exactly as torch's AdamW does; large ones by bitsandbytes, in its codes."""

    def __init__(self, params: Iterable[Tensor] | Iterable[dict[str, Any]], **settings: Any) -> None:
        super().__init__(params, **settings)
        self._kernels = import_optional("bitsandbytes", MISSING).functional
        self._tables: dict[torch.device, list[Tensor]] = {}

    def _step_large(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            codes = torch.zeros_like(parameter, dtype=torch.uint8)
            scale = torch.zeros(-(-parameter.numel() // BLOCK), device=parameter.device)
            state.update(step=torch.zeros(()), state1=codes, absmax1=scale, state2=codes.clone(), absmax2=scale.clone())
        state["step"] += 1
        signed, unsigned = self._codes(parameter.device)
        self._kernels.optimizer_update_8bit_blockwise(
            "adam",
            gradient,
            parameter,
            state["state1"],
            state["state2"],
            *group["betas"],
            beta3=0.0,
            alpha=0.0,
            eps=group["eps"],
            step=int(state["step"]),
            lr=group["lr"],
            qmap1=signed,
            qmap2=unsigned,
            absmax1=state["absmax1"],
            absmax2=state["absmax2"],
            weight_decay=group["weight_decay"],
        )

    def _codes(self, device: torch.device) -> list[Tensor]:
        """What codes stand for, of the first moment and the second."""
        if device not in self._tables:
            self._tables[device] = [self._kernels.create_dynamic_map(signed).to(device) for signed in (True, False)]
        return self._tables[device]
