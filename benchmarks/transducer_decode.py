"""Greedy decoding with a large FastConformer transducer: real-time factors, and the same output at any batch size.

    python benchmarks/transducer_decode.py OUT [--size large] [--durations 0,1,2,3,4] [--batches 1,16,128]
    python benchmarks/transducer_decode.py OUT --model RUN --manifest DEV.jsonl [--batches 1,16,128]

OUT is where transducer_decode.json goes. Without a model the weights are random, so nothing is recognized: the blank's
bias is set so that about as many labels come out as speech has (LABELS_PER_SECOND), and clips are noise of 10 to 20
seconds that swells and fades. RTFx is seconds of audio per second of computing; "search" leaves out front-end and
encoder.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attune.audio.decode import read_audio
from attune.decoding.transducer import greedy
from attune.families.transducer.build import description
from attune.families.transducer.model import TransducerModel
from attune.families.transducer.settings import TransducerConfig
from attune.families.transducer.shape import read_shape
from attune.site import Site
from attune.sources import Cache
from attune.stages.eval_target import load_eval_target, open_eval_target
from attune.types import SAMPLE_RATE, Batch, Hypothesis, TokenTargets
from attune.world import World

from on_device import name as name_of
from on_device import usual, wait

TOKENS, LABELS_PER_SECOND, REPEATS = 1024, 3.0, 3
SHARPNESS = 6.0  # as drawn, a random joint says much the same of every frame


def build(size: str, durations: tuple[int, ...], device: torch.device) -> TransducerModel:
    """The family's own model with random weights."""
    torch.manual_seed(17)
    config = TransducerConfig(encoder="fastconformer", size=size, durations=durations, tokens="task")  # type: ignore[arg-type]
    described = description(config, Path())
    pieces = [f"▁{token}" for token in range(TOKENS)]
    model = TransducerModel(read_shape(described), pieces, described).eval().to(device)
    with torch.no_grad():
        model.joint.output.weight.mul_(SHARPNESS)
    return model


def trained(run: Path, device: torch.device) -> TransducerModel:
    """The model of a run."""
    site = Site(Cache(run / "cache"), 0, device.type)
    subject = open_eval_target(str(run), [], site)
    model = load_eval_target(subject.pretrained, site, World(0, 1, device)).task_model.model
    if not isinstance(model, TransducerModel):
        raise SystemExit(f"{run} is not a transducer's run.")
    return model.eval()


def speech(manifest: Path) -> list[Tensor]:
    """The clips of a manifest."""
    rows = [json.loads(line) for line in manifest.read_text().splitlines()]
    return [torch.from_numpy(read_audio(manifest.parent / row["audio"])) for row in rows]


def clips(count: int, seconds: tuple[float, float]) -> list[Tensor]:
    """Noise that swells and fades a few times a second, each of its own length."""
    generator = torch.Generator().manual_seed(3)
    lengths = torch.linspace(*seconds, count).mul(SAMPLE_RATE).long().tolist()
    found = []
    for length in lengths:
        swell = torch.rand(1, 1, length // 4000 + 2, generator=generator)
        loudness = torch.nn.functional.interpolate(swell, size=length, mode="linear")[0, 0]
        found.append(0.1 * loudness * torch.randn(length, generator=generator))
    return found


def batch_of(some: list[Tensor], device: torch.device) -> Batch:
    """Clips padded together."""
    audio = torch.nn.utils.rnn.pad_sequence(some, batch_first=True)
    none = TokenTargets(torch.zeros(len(some), 0, dtype=torch.long), torch.zeros(len(some), dtype=torch.long))
    lengths = torch.tensor([len(clip) for clip in some])
    batch = Batch(tuple(map(str, range(len(some)))), audio, lengths, none)
    return batch.to(device)


def set_rate(model: TransducerModel, some: list[Tensor], device: torch.device) -> float:
    """Move the blank's bias until the labels come at the rate of speech; returns the rate reached."""
    scorer, seconds = model.scorer(batch_of(some, device)), sum(map(len, some)) / SAMPLE_RATE
    low, high, rate = -100.0, 100.0, 0.0
    for _ in range(24):
        middle = (low + high) / 2
        model.joint.output.bias.data[scorer.blank] = middle
        rate = sum(len(found.tokens) for found in greedy(scorer)) / seconds
        low, high = (middle, high) if rate > LABELS_PER_SECOND else (low, middle)
    return rate


@contextmanager
def precision(name: str, device: torch.device) -> Iterator[None]:
    """Plain float32, or autocast to bfloat16."""
    with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=name == "bf16"):
        yield


def timed(work: Callable[[], Any], device: torch.device) -> tuple[float, Any]:
    """Seconds of some work, and its result."""
    wait(device)
    start = time.perf_counter()
    result = work()
    wait(device)
    return time.perf_counter() - start, result


def decode(
    model: TransducerModel, every: list[Tensor], size: int, graphed: bool, device: torch.device
) -> tuple[list[Hypothesis], dict[str, float]]:
    """All clips in batches of this size, longest first, and the seconds it took."""
    order = sorted(range(len(every)), key=lambda index: -len(every[index]))
    found: dict[int, Hypothesis] = {}
    spent = {"encoder": 0.0, "search": 0.0}
    for first in range(0, len(order), size):
        rows = order[first : first + size]
        batch = batch_of([every[row] for row in rows], device)
        seconds, scorer = timed(partial(model.scorer, batch), device)
        spent["encoder"] += seconds
        seconds, hypotheses = timed(partial(greedy, scorer, graphed=graphed), device)
        spent["search"] += seconds
        found.update(zip(rows, hypotheses, strict=True))
    return [found[row] for row in range(len(every))], spent


def measure(
    model: TransducerModel, every: list[Tensor], size: int, graphed: bool, name: str, device: torch.device
) -> tuple[list[Hypothesis], dict[str, Any]]:
    """The median of some repeats after one that does not count; one by one there are enough clips for one run."""
    with precision(name, device):
        decode(model, every[:size], size, graphed, device)
        results = [decode(model, every, size, graphed, device) for _ in range(REPEATS if size > 1 else 1)]
    audio = sum(map(len, every)) / SAMPLE_RATE
    encoder, search = (statistics.median(spent[part] for _, spent in results) for part in ("encoder", "search"))
    labels = sum(len(hypothesis.tokens) for hypothesis in results[0][0]) / audio
    figures = {
        "batch": size,
        "precision": name,
        "graphed": graphed,
        "clips": len(every),
        "audio_seconds": audio,
        "encoder_seconds": encoder,
        "search_seconds": search,
        "rtfx": audio / (encoder + search),
        "search_rtfx": audio / search,
        "labels_per_second": labels,
    }
    print(json.dumps(figures), flush=True)
    return results[0][0], figures


def differing(these: list[Hypothesis], those: list[Hypothesis]) -> int:
    """Utterances that do not have the same tokens in the same frames."""
    pairs = zip(these, those, strict=True)
    return sum((one.tokens, one.frames) != (other.tokens, other.frames) for one, other in pairs)


def arguments() -> argparse.Namespace:
    """What to measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--manifest", type=Path)
    parser.add_argument("--size", default="large")
    parser.add_argument("--durations", default="")
    parser.add_argument("--batches", default="1,16,128")
    parser.add_argument("--seconds", type=float, nargs=2, default=(10.0, 20.0))
    parser.add_argument(
        "--tiny", action="store_true", help="the dummy size and three clips, to try the script on a CPU"
    )
    given = parser.parse_args()
    if given.tiny:
        given.size, given.batches, given.seconds = "dummy", "1,3", (0.5, 1.0)
    return given


def main() -> None:
    """Measure every batch size in both precisions, with and without graphs, and compare the outputs."""
    given = arguments()
    device = usual()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    durations = tuple(int(each) for each in given.durations.split(",") if each)
    sizes = [int(each) for each in given.batches.split(",")]
    if given.model:
        model, every = trained(given.model, device), speech(given.manifest)
    else:
        model, every = build(given.size, durations, device), clips(max(sizes), tuple(given.seconds))
        with torch.inference_mode():
            set_rate(model, every[:: max(1, len(every) // 8)], device)
    runs, outputs = [], {}
    for name in ("fp32", "bf16"):
        for size in sizes:
            some = every if name == "fp32" or size > 1 else every[::8]  # one by one, all of them would take minutes
            for graphed in (False, True) if device.type == "cuda" and size > 1 else (False,):
                outputs[name, size, graphed], figures = measure(model, some, size, graphed, name, device)
                runs.append(figures)
    first = outputs["fp32", sizes[0], False]
    same = {f"batch {size}, graphed {graphed}": differing(first, found)
            for (name, size, graphed), found in outputs.items() if name == "fp32"}  # fmt: skip
    report = {
        "device": name_of(device),
        "torch": torch.__version__,
        "parameters": sum(each.numel() for each in model.parameters()),
        "durations": durations,
        "differing_utterances_fp32": same,
        "runs": runs,
    }
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "transducer_decode.json").write_text(json.dumps(report, indent=1) + "\n")
    if any(same.values()):
        message = f"The batch shows in the output: {same} of {len(every)} utterances differ."
        if given.model:
            raise SystemExit(message)
        print(message + " Random weights have near ties.")


if __name__ == "__main__":
    main()
