"""Every head scores the frames of an encoder in half precision nearly as in full."""

import pytest
import torch

from attune.tasks._mask_settings import MaskHeadConfig
from attune.tasks._masks import MaskHead
from attune.tasks.classify.head import LabelHead
from attune.tasks.convert_voice import VoiceHeadConfig
from attune.tasks.convert_voice.head import VoiceHead
from attune.tasks.diarize import ActivityHeadConfig
from attune.tasks.diarize.head import ActivityHead
from attune.tasks.spot_queries.head import FrameHead
from attune.tasks.transcribe.head import CtcHead
from attune.tasks.translate import TranslationHeadConfig
from attune.tasks.translate.head import TranslationHead
from attune.tasks.verify_speaker import SpeakerHeadConfig
from attune.tasks.verify_speaker.head import SpeakerHead
from attune.testing.outputs import outputs_of
from attune.types import Batch, TokenTargets

WIDTH, STRIDE = 8, 320
HEADS = {
    "classify": lambda: LabelHead(WIDTH, 8, [3, 2]),
    "convert_voice": lambda: VoiceHead(WIDTH, STRIDE, VoiceHeadConfig(1, 8, 8, 2)),
    "diarize": lambda: ActivityHead(WIDTH, STRIDE, 2, ActivityHeadConfig(1, 8)),
    "enhance": lambda: MaskHead(WIDTH, STRIDE, 1, MaskHeadConfig(1, 8)),
    "separate": lambda: MaskHead(WIDTH, STRIDE, 2, MaskHeadConfig(1, 8)),
    "spot_queries": FrameHead,
    "transcribe": lambda: CtcHead(WIDTH, 8, 1, 5, 0.0),
    "translate": lambda: TranslationHead(WIDTH, 5, TranslationHeadConfig(1, 1, 8, 2)),
    "verify_speaker": lambda: SpeakerHead(WIDTH, 3, SpeakerHeadConfig(8, 8)),
}


@torch.inference_mode()
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", HEADS)
def test_a_head_takes_frames_in_half_precision(name, dtype):
    torch.manual_seed(1)
    head, frames, counts = HEADS[name]().eval(), torch.randn(2, 20, WIDTH), torch.tensor([20, 7])
    prompts = TokenTargets(torch.zeros(2, 1, dtype=torch.long), torch.ones(2, dtype=torch.long))
    batch = Batch(("a", "b"), torch.randn(2, 20 * STRIDE) / 10, counts * STRIDE, prompts)
    exact = outputs_of(head.scorer(frames, counts, batch))
    found = outputs_of(head.to(dtype).scorer(frames.to(dtype), counts, batch))
    for one, other in zip(exact, found, strict=True):
        assert float((one - other).norm()) < 0.3 * float(one.norm()) and other.dtype == torch.float32
