"""Every family with every option, alone and in pairs, through the command line on a CUDA device.

    python benchmarks/gpu_matrix.py OUT [--only WORD …] [--at-once N] [--device cuda]

Eight steps each on a small corpus, two evaluations, two checkpoints; strict ones are killed and resumed by `attune
verify`. OUT gets matrix.json and matrix.md. Exit 1 when any combination ends in a traceback or fails.
"""

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from attune.run import Run
from attune.testing import make_corpus

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
    "masks": ["augment.masks={}"],
    "pack": ["model.pack=true", "model.timestamps=true"],
    "beam": ["decode.search=beam"],
    "bf16 decoding": ["decode.precision=bf16"],
}
PAIRED_FAMILIES = ("whisper, full", "whisper, small's width", "contextnet", "fastconformer", "ssl, CTC")
PAIRED = ("checkpointing", "compile", "bf16", "fp16", "LoRA", "8-bit", "masks")
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


LORA_TARGETS = {"contextnet": "enc, pred", "conformer": "linear_q, linear_v", "ssl": "projection"}


def words_of(family: str, option: str) -> list[str]:
    """The overrides of an option; LoRA adapts other layers in each family."""
    targets = [f"adapt.targets=[{layers}]" for name, layers in LORA_TARGETS.items() if name in family]
    return [*OPTIONS[option], *(targets if option == "LoRA" else [])]


def fits(family: str, option: str) -> bool:
    """Whether a family has the option at all."""
    if option == "pack":
        return family in ("whisper, full", "whisper, trimmed")
    if option == "checkpointing":
        return not family.startswith("ssl")
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
    """A corpus with labels, and two Whispers with random weights."""
    for split, count, seed in (("train", 48, 1), ("dev", 8, 2)):
        manifest = make_corpus(root / split, utterances=count, seed=seed)
        rows = [json.loads(line) for line in manifest.read_text().splitlines()]
        labeled = [row | {"labels": {"first": row["text"].split()[0]}} for row in rows]
        manifest.write_text("".join(json.dumps(row) + "\n" for row in labeled))
    write_whisper(root / "tiny")
    heads = {"encoder_attention_heads": 12, "decoder_attention_heads": 12}
    write_whisper(root / "wide", d_model=768, encoder_ffn_dim=1536, decoder_ffn_dim=1536, **heads)


def run_case(number: int, family: str, options: tuple[str, ...], root: Path, device: str) -> Result:
    """Train it; verify it too where it is strict."""
    run = root / f"run-{number}"
    is_classifier = family == "ssl, classify"
    task = "{name: classify, label: first}" if is_classifier else "{name: transcribe}"
    model = FAMILIES[family].replace("{root}", str(root))
    text = RECIPE.format(run=run, root=root, task=task, model=model, metric="accuracy" if is_classifier else "wer")
    recipe = root / f"{number}.yaml"
    recipe.write_text(text)
    site = ["--device", device, "--workers", "0"]
    begun = time.perf_counter()
    done = attune("train", str(recipe), *(word for option in options for word in words_of(family, option)), *site)
    if done.returncode == 0 and "strict" in options:
        done = attune("verify", str(run), *site)
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


def attune(*words: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, as a user has it."""
    command = [sys.executable, "-P", "-m", "attune", *words]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", "no end after 400 s")


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


def main() -> int:
    """Run all combinations, or those that contain every word of --only."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--scratch", type=Path, default=Path("/tmp/attune-matrix"))
    arguments = parser.parse_args()
    chosen = [case for case in cases() if all(word in f"{case[0]}: {' + '.join(case[1])}" for word in arguments.only)]
    arguments.scratch.mkdir(parents=True, exist_ok=True)
    prepare(arguments.scratch)
    with ThreadPoolExecutor(arguments.at_once) as pool:
        jobs = [
            pool.submit(run_case, number, *case, arguments.scratch, arguments.device)
            for number, case in enumerate(chosen)
        ]
        results = [job.result() for job in jobs]
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "matrix.json").write_text(json.dumps([asdict(each) for each in results], indent=1))
    (arguments.out / "matrix.md").write_text(table(results))
    failed = [each for each in results if not each.holds]
    for each in failed:
        print(f"\n{each.family}: {each.options}\n{each.message}")
    print(f"\n{len(results)} combinations, {len(failed)} failed, {sum(each.code == 2 for each in results)} refused")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
