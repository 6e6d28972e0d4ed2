"""Every family with every option, alone and in pairs, through the command line on a CUDA device.

    python benchmarks/gpu_matrix.py OUT [--only WORD …] [--at-once N] [--seconds S] [--device cuda]

Eight steps each on a small corpus, two evaluations, two checkpoints; strict ones are killed and resumed by `attune
verify`. OUT gets matrix.json and matrix.md; run again, it goes on with what is missing there. After `--seconds` it
ends: what is running then counts as missing. Exit 1 when any combination ends in a traceback or fails, 75 when some
are missing.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from attune.run import Run
from attune.testing import make_corpus

from on_device import usual
from tiny_upstreams import make_encoder
from tiny_whisper import write_whisper

FAMILIES = {
    "whisper, full": "{family: whisper, weights: {root}/tiny, window: full}",
    "whisper, trimmed": "{family: whisper, weights: {root}/tiny, window: trimmed}",
    "whisper, small's width": "{family: whisper, weights: {root}/wide, window: trimmed}",
    "contextnet": "{family: transducer, encoder: contextnet, size: dummy, tokens: task}",
    "conformer": "{family: transducer, encoder: conformer, size: dummy, tokens: task}",
    "fastconformer": "{family: transducer, encoder: fastconformer, size: dummy, tokens: task}",
    "fastconformer, TDT": (
        "{family: transducer, encoder: fastconformer, size: dummy, tokens: task, durations: [0, 1, 2]}"
    ),
    "ssl, CTC": "{family: ssl}",
    "ssl, classify": "{family: ssl}",
    "ssl, hubert": "{family: ssl, upstream: hubert, weights: {root}/hubert}",
    "aed": "{family: aed, size: tiny, tokens: task}",
    "aed, Conformer": "{family: aed, size: tiny-conformer, tokens: task}",
    "lm": "{family: lm, size: tiny}",
}
TASKS = {  # with the metric; of other families, `transcribe`
    "ssl, classify": ("{name: classify, label: first}", "accuracy"),
    "lm": ("{name: language_model}", "perplexity"),
}
OPTIONS = {
    "checkpointing": ["model.gradient_checkpointing=true"],
    "compile": ["train.compile=true"],
    "bf16": ["train.precision=bf16"],
    "fp16": ["train.precision=fp16"],
    "strict": ["train.strict=true"],
    "LoRA": ["adapt.method=lora", "adapt.rank=4"],
    "8-bit": ["optimizer.name=adamw8bit"],
    "adafactor": ["optimizer.name=adafactor"],
    "shard": ["train.shard=optimizer"],
    "shard full": ["train.shard=full"],
    "offload": ["train.shard=gradients", "train.offload=true"],
    "masks": ["augment.masks={}"],
    "kept features": ["adapt.freeze=[upstream]", "model.cache={root}/kept"],
    "pack": ["model.pack=true", "model.timestamps=true"],
    "beam": ["decode.search=beam"],
    "bf16 decoding": ["decode.precision=bf16"],
}
PAIRED_FAMILIES = ("whisper, full", "whisper, small's width", "contextnet", "fastconformer", "ssl, CTC", "aed")
PAIRED = ("checkpointing", "compile", "bf16", "fp16", "LoRA", "8-bit", "masks")
LONGEST = 400.0  # seconds of one command
ONE_OF = ({"bf16", "fp16"}, {"8-bit", "adafactor"})  # two values of one setting
RECIPE = """\
run: {run}
seed: 5
data: {{train: [{root}/train/manifest.jsonl], dev: [{root}/dev/manifest.jsonl]}}
task: {task}
model: {model}
batches: {{micro_utterances: 8, micros_per_step: 2}}
optimizer: {{lr: 0.001}}
train: {{steps: 8, warmup: 2, eval_every: 4, save_every: 4, keep_best: dev.{metric}}}
"""


@dataclass(frozen=True)
class Result:
    """One combination, and how it ended."""

    family: str
    options: str
    code: int
    seconds: float
    peak_gib: float | None
    message: str

    @property
    def holds(self) -> bool:
        """Whether it trained, and held what `verify` looks at; or was refused in a line, as what cannot be combined."""
        return self.code == 0 or (self.code == 2 and "Traceback" not in self.message)


LORA_TARGETS = {  # by a part of the family's name, the first that is in it; Whisper has its own
    "contextnet": "enc, pred", "conformer": "linear_q, linear_v", "aed, Conformer": "q_proj, v_proj",
    "hubert": "q_proj, v_proj", "ssl": "projection", "aed": "linear", "lm": "linear",
}  # fmt: skip


def words_of(family: str, option: str, root: Path) -> list[str]:
    """The overrides of an option; LoRA adapts other layers in each family."""
    targets = next((layers for name, layers in LORA_TARGETS.items() if name in family), None)
    words = [word.replace("{root}", str(root)) for word in OPTIONS[option]]
    return [*words, f"adapt.targets=[{targets}]"] if option == "LoRA" and targets else words


def fits(family: str, option: str) -> bool:
    """Whether a family has the option at all."""
    if option == "pack":
        return family in ("whisper, full", "whisper, trimmed")
    if option == "checkpointing":
        return not family.startswith(("ssl", "aed", "lm"))
    if option == "kept features":
        return family == "ssl, hubert"
    if family == "lm":
        return option not in ("masks", "beam", "bf16 decoding")
    return not (family == "ssl, classify" and option in ("beam", "compile"))


def cases() -> list[tuple[str, tuple[str, ...]]]:
    """Each option alone for each family, and for some of them pairs of options that touch one another."""
    found = []
    for family in FAMILIES:
        alone = [(option,) for option in OPTIONS if fits(family, option)]
        paired = [option for option in PAIRED if family in PAIRED_FAMILIES and fits(family, option)]
        pairs = [pair for pair in combinations(paired, 2) if not any(set(pair) <= group for group in ONE_OF)]
        found += [(family, options) for options in ((), *alone, *pairs)]
    return found


def prepare(root: Path) -> None:
    """A corpus with labels, two Whispers and a HuBERT with random weights."""
    for split, count, seed in (("train", 48, 1), ("dev", 8, 2)):
        manifest = make_corpus(root / split, utterances=count, seed=seed)
        rows = [json.loads(line) for line in manifest.read_text().splitlines()]
        labeled = [row | {"labels": {"first": row["text"].split()[0]}} for row in rows]
        manifest.write_text("".join(json.dumps(row) + "\n" for row in labeled))
    write_whisper(root / "tiny")
    heads = {"encoder_attention_heads": 12, "decoder_attention_heads": 12}
    write_whisper(root / "wide", d_model=768, encoder_ffn_dim=1536, decoder_ffn_dim=1536, **heads)
    make_encoder("hubert").save_pretrained(root / "hubert")


def run_case(family: str, options: tuple[str, ...], root: Path, device: str, end: float) -> Result | None:
    """Train it; verify it too where it is strict. None: the time was over."""
    number = cases().index((family, options))
    run = root / f"run-{number}"
    shutil.rmtree(run, ignore_errors=True)  # of a call that was cut off
    task, metric = TASKS.get(family, ("{name: transcribe}", "wer"))
    model = FAMILIES[family].replace("{root}", str(root))
    text = RECIPE.format(run=run, root=root, task=task, model=model, metric=metric)
    recipe = root / f"{number}.yaml"
    recipe.write_text(text)
    site = ["--device", device, "--workers", "0"]
    begun = time.perf_counter()
    words = (word for option in options for word in words_of(family, option, root))
    done = attune(end, "train", str(recipe), *words, *site)
    if done.returncode == 0 and "strict" in options:
        done = attune(end, "verify", str(run), *site)
    if time.monotonic() >= end:
        return None
    peak = None
    if (run / "log.jsonl").exists():
        steps = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
        peak = max((line["memory_gib"] for line in steps if "memory_gib" in line), default=None)
    state = Run(run).state()
    message = "" if done.returncode == 0 else (done.stderr.strip() or done.stdout.strip() or str(state))[-1500:]
    seconds = round(time.perf_counter() - begun, 1)
    result = Result(family, " + ".join(options) or "plain", done.returncode, seconds, peak, message)
    print(f"{'ok  ' if result.holds else 'FAIL'} {result.family}: {result.options} ({seconds} s)", flush=True)
    return result


def attune(end: float, *words: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, as a user has it."""
    command = [sys.executable, "-P", "-m", "attune", *words]
    limit = max(0.0, min(LONGEST, end - time.monotonic()))
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"no end after {limit:.0f} s")


def table(results: list[Result]) -> str:
    """Options by family: seconds, `refused`, or `FAILED`."""
    lines = ["| | " + " | ".join(FAMILIES) + " |", "|---" * (len(FAMILIES) + 1) + "|"]
    cells = {(each.options, each.family): each for each in results}
    for options in dict.fromkeys(each.options for each in results):
        row = [_cell(cells.get((options, family))) for family in FAMILIES]
        lines.append(f"| {options} | " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


def _cell(result: Result | None) -> str:
    if result is None:
        return ""
    if not result.holds:
        return "**FAILED**"
    return "refused" if result.code else f"{result.seconds:.0f} s"


def slow_ones_first(case: tuple[str, tuple[str, ...]]) -> int:
    """So that none of them is alone in the end."""
    return 0 if "compile" in case[1] else 1 if "strict" in case[1] else 2


def write(out: Path, results: list[Result]) -> None:
    """What there is so far, in the order of the table."""
    place = {(family, " + ".join(options) or "plain"): index for index, (family, options) in enumerate(cases())}
    ordered = sorted(results, key=lambda each: place[each.family, each.options])
    for name, text in (("json", json.dumps([asdict(each) for each in ordered], indent=1)), ("md", table(ordered))):
        (out / f"matrix.{name}.new").write_text(text)
        (out / f"matrix.{name}.new").replace(out / f"matrix.{name}")


def main() -> int:
    """Run all combinations that are missing, or those of them that contain every word of --only."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--device", default=usual().type)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    stored = given.out / "matrix.json"
    results = [Result(**each) for each in json.loads(stored.read_text())] if stored.exists() else []
    there = {(each.family, each.options) for each in results if each.holds}
    results = [each for each in results if each.holds]
    wanted = [case for case in cases() if all(word in f"{case[0]}: {' + '.join(case[1])}" for word in given.only)]
    missing = [case for case in wanted if (case[0], " + ".join(case[1]) or "plain") not in there]
    end = time.monotonic() + given.seconds
    with tempfile.TemporaryDirectory(prefix="attune-matrix-") as folder, ThreadPoolExecutor(given.at_once) as pool:
        if missing:
            prepare(Path(folder))
        jobs = [
            pool.submit(run_case, *case, Path(folder), given.device, end)
            for case in sorted(missing, key=slow_ones_first)
        ]
        for job in as_completed(jobs):
            if found := job.result():
                results.append(found)
                write(given.out, results)
    failed = [each for each in results if not each.holds]
    for each in failed:
        print(f"\n{each.family}: {each.options}\n{each.message}")
    left = sum(job.result() is None for job in jobs)
    refused = sum(each.code == 2 for each in results)
    print(f"\n{len(results)} combinations, {len(failed)} failed, {refused} refused, {left} missing")
    return 1 if failed else os.EX_TEMPFAIL if left else 0


if __name__ == "__main__":
    sys.exit(main())
