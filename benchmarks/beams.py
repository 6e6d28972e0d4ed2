"""A beam over a batch beside the same beam over one utterance at a time: CTC, transducer, `aed`, Whisper.

    python benchmarks/beams.py OUT [--beam 16] [--utterances 16] [--parts ctc,transducer,aed,whisper]
    python benchmarks/beams.py OUT --parts real --whisper WEIGHTS --an4 AN4

OUT is where beams.json goes. Random weights, fp32; on a GPU FastConformer large, the `aed` of LibriSpeech and Whisper
small's shapes, and wall time; on the CPU (`--tiny`) processor time. WEIGHTS is a published Whisper, which searches
recordings of AN4's dev.jsonl. The search alone is measured, by turns, the least of three; what the encoder computes is
there before. Transducers emit as many labels a second as speech has, attention models with random weights 40 tokens:
they do not end.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from attune.api import Recognizer, load
from attune.audio.decode import Samples, read_audio
from attune.batches.collate import collate
from attune.decoding.search import Search, search
from attune.families.aed.model import AedModel
from attune.families.aed.settings import AedConfig
from attune.families.aed.shape import PRESETS
from attune.types import CtcScorer, LoadedRow, Scorer, Utterance, require_hypothesis

from on_device import name, usual, wait
from tiny_whisper import MULTILINGUAL, write_whisper
from transducer_decode import batch_of, build, clips, set_rate

ROUNDS = 3
TOKENS = 40  # of attention models, whose random weights do not end
SMALL = {"d_model": 768, "encoder_layers": 12, "decoder_layers": 12, "encoder_attention_heads": 12,
         "decoder_attention_heads": 12, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072,
         "max_target_positions": 448}  # fmt: skip

# Rows of a set of utterances → what to search; new each time, as a search uses it up
MakeScorer = Callable[[Sequence[int]], Scorer]


@dataclass(frozen=True)
class Size:
    """How much is searched, and where."""

    device: torch.device
    beam: int = 16
    utterances: int = 16
    seconds: tuple[float, float] = (10.0, 20.0)
    tokens: int = TOKENS
    vocabularies: tuple[int, ...] = (32, 1024, 5000)
    transducer: str = "large"
    aed: tuple[str, ...] = ("librispeech", "transformer")
    whisper: dict[str, int] | None = None


def tiny(device: torch.device) -> Size:
    """In seconds on a CPU."""
    return Size(device, 2, 2, (0.5, 1.0), 3, (32,), "dummy", ("tiny",), {})


def compare(make: MakeScorer, size: Size) -> dict[str, Any]:
    """Utterances a second in one batch and one at a time, and how many hypotheses are the same."""
    every = list(range(size.utterances))
    settings = Search("beam", size.beam)
    found, least = [list[tuple[int, ...]]()] * 2, [float("inf")] * 2
    clock = time.perf_counter if size.device.type == "cuda" else time.process_time
    for _ in range(ROUNDS):
        for way, groups in enumerate(([every], [[row] for row in every])):
            found[way], spent = [], 0.0
            for rows in groups:
                with torch.inference_mode():
                    scorer = make(rows)
                    wait(size.device)
                    start = clock()
                    found[way] += [require_hypothesis(each).tokens for each in search(scorer, settings)]
                    wait(size.device)
                    spent += clock() - start
            least[way] = min(least[way], spent)
    same = sum(one == other for one, other in zip(*found, strict=True))
    return {
        "beam": size.beam,
        "utterances": size.utterances,
        "together / s": round(size.utterances / least[0], 1),
        "alone / s": round(size.utterances / least[1], 1),
        "times": round(least[1] / least[0], 1),
        "same hypotheses": f"{same} of {size.utterances}",
        "tokens": sum(map(len, found[0])),
    }


def ctc(size: Size, vocabulary: int) -> MakeScorer:
    """Random outputs in which the blank is probable, of utterances of different lengths."""
    torch.manual_seed(0)
    first, last = (round(25 * seconds) for seconds in size.seconds)
    lengths = torch.linspace(first, last, size.utterances).long()
    logits = torch.randn(size.utterances, last, vocabulary) * 3
    logits[..., 0] += 8 if vocabulary < 5000 else 10
    log_probs = logits.log_softmax(-1).to(size.device)

    def make(rows: Sequence[int]) -> Scorer:
        own = lengths[list(rows)]
        return CtcScorer(log_probs[list(rows), : int(own.max())], own.to(size.device))

    return make


def transducer(size: Size) -> MakeScorer:
    """A FastConformer with random weights."""
    model, audio = build(size.transducer, (), size.device), clips(size.utterances, size.seconds)
    with torch.inference_mode():
        set_rate(model, audio[:: max(1, len(audio) // 8)], size.device)
    return lambda rows: model.scorer(batch_of([audio[row] for row in rows], size.device))


def aed(size: Size, preset: str) -> MakeScorer:
    """An attention model with random weights."""
    torch.manual_seed(0)
    config = AedConfig(size=preset, tokens="task", normalize="sentence")  # type: ignore[arg-type]
    model = AedModel(replace(PRESETS[config.size or "tiny"], tokens=1000), config).eval().to(size.device)
    audio = clips(size.utterances, size.seconds)

    def make(rows: Sequence[int]) -> Scorer:
        scorer: Any = model.scorer(batch_of([audio[row] for row in rows], size.device))
        scorer.limits = [size.tokens] * len(rows)
        return scorer  # type: ignore[no-any-return]

    return make


def whisper(size: Size, folder: Path) -> MakeScorer:
    """A Whisper with random weights."""
    shape = SMALL if size.whisper is None else size.whisper
    weights = write_whisper(folder / "whisper", MULTILINGUAL, **shape)
    audio = [clip.numpy() for clip in clips(size.utterances, size.seconds)]
    make = whisper_on(audio, load(weights, size.device.type, language="en"), size)

    def limited(rows: Sequence[int]) -> Scorer:
        scorer: Any = make(rows)
        scorer.limits = [size.tokens] * len(rows)
        return scorer  # type: ignore[no-any-return]

    return limited


def real_whisper(size: Size, weights: Path, an4: Path) -> MakeScorer:
    """A published Whisper on recordings of AN4."""
    manifest = an4 / "dev.jsonl"
    rows = [json.loads(line) for line in manifest.read_text().splitlines()][: size.utterances]
    audio = [read_audio(an4 / row["audio"]) for row in rows]
    return whisper_on(audio, load(weights, size.device.type), replace(size, utterances=len(audio)))


def whisper_on(audio: Sequence[Samples], recognizer: Recognizer, size: Size) -> MakeScorer:
    """What Whisper says of these recordings."""
    task_model = recognizer.loaded.task_model
    prompt = task_model.codec.prompt(Utterance("", 0.0))

    def make(rows: Sequence[int]) -> Scorer:
        batch = collate([LoadedRow(str(row), audio[row], prompt) for row in rows])
        return task_model.model.scorer(batch.to(size.device))

    return make


def parts(size: Size, folder: Path, given: argparse.Namespace) -> dict[str, tuple[str, Callable[[], MakeScorer]]]:
    """What can be searched: by name, the part that it belongs to and how it is made."""
    ctcs = {f"CTC, {each} tokens": ("ctc", lambda each=each: ctc(size, each)) for each in size.vocabularies}
    aeds = {f"aed, {each}": ("aed", lambda each=each: aed(size, each)) for each in size.aed}
    return {
        **ctcs,
        "transducer": ("transducer", lambda: transducer(size)),
        **aeds,
        "whisper": ("whisper", lambda: whisper(size, folder)),
        "whisper as published": ("real", lambda: real_whisper(size, given.whisper, given.an4)),
    }


def main() -> None:
    """Measure what was asked for, and write beams.json after each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--beam", type=int, default=16)
    parser.add_argument("--utterances", type=int, default=16)
    every = "ctc,transducer,aed,whisper"
    parser.add_argument("--parts", type=lambda text: text.split(","), default=every.split(","), help=f"{every},real")
    parser.add_argument("--whisper", type=Path, help="a published Whisper, for `real`")
    parser.add_argument("--an4", type=Path, help="a folder with dev.jsonl, for `real`")
    parser.add_argument("--tiny", action="store_true", help="two utterances of a second")
    given = parser.parse_args()
    size = tiny(usual()) if given.tiny else Size(usual(), given.beam, given.utterances)
    found: dict[str, Any] = {"device": name(size.device), "torch": torch.__version__}
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for label, (part, make) in parts(size, Path(folder), given).items():
            if part in given.parts:
                found[label] = compare(make(), size)
                print(label, json.dumps(found[label]), flush=True)
                (given.out / "beams.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
