"""Whisper on the CPU: seconds and WER of attune, openai-whisper, transformers and faster-whisper, in one run.

    python benchmarks/cpu_inference.py MODEL DATA [--threads 1] [--rounds 3] [--clips 20] [--systems NAME …]

MODEL is a Whisper in transformers' format; DATA holds an4/ and sentences/ with their manifests. Every system gets the
same samples, transcribes English greedily without timestamps, and runs in a process of its own, which is ended where it
takes longer than `--limit` seconds for anything. The systems take turns, so that other work on the machine hits all of
them alike, and every answer is printed as it comes. The tables at the end have CPU seconds (of all threads) and wall
seconds, the least of all rounds, without loading, and both as multiples of the quickest peer's. Peers that are not
installed are skipped.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attune.types import DecodingPrecision

Samples = NDArray[np.float32]
Transcribe = Callable[[Sequence[Samples]], list[str]]
RATE = 16_000


def main() -> None:
    """Let the systems take turns, each in a process of its own, and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clips", type=int, default=20)
    parser.add_argument("--systems", nargs="*", default=list(SYSTEMS), choices=SYSTEMS)
    parser.add_argument("--limit", type=float, default=120, help="seconds for loading, and for each round")
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.alone:
        answer_rounds(arguments)
        return
    loaded = [system for name in arguments.systems if (system := System.started(name, arguments)).answer() is not None]
    for _ in range(arguments.rounds):
        for system in loaded:
            system.ask()
    for index, name in enumerate((f"AN4 dev, {arguments.clips} clips", "one recording of 62 s")):
        print_table(name, {system.name: system.best(index) for system in loaded if system.rounds})


@dataclass(frozen=True, slots=True)
class Measured:
    """A set in one round."""

    cpu: float
    wall: float
    wer: float


@dataclass(slots=True)
class System:
    """A process that measures one system, a round for each line that it reads."""

    name: str
    process: "subprocess.Popen[str]"
    limit: float
    rounds: list[list[Measured]] = field(default_factory=list)

    @classmethod
    def started(cls, name: str, arguments: argparse.Namespace) -> "System":
        """Its threads are as many as asked for in every library."""
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
        environment = {**os.environ, **dict.fromkeys(names, str(arguments.threads))}
        command = [sys.executable, *sys.argv, "--alone", name]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, env=environment, text=True, stdin=pipe, stdout=pipe)
        return cls(name, process, arguments.limit)

    def answer(self) -> str | None:
        """The next line of the process, which is ended at the limit; None if there is no more."""
        timer = threading.Timer(self.limit, self.process.kill)
        timer.start()
        line = self.process.stdout.readline() if self.process.stdout else ""
        timer.cancel()
        if not line:
            print(f"{self.name}: no answer (exit code {self.process.wait()})", flush=True)
        return line or None

    def ask(self) -> None:
        """One more round, of a process that is still there."""
        if self.process.poll() is None and self.process.stdin:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
            if line := self.answer():
                self.rounds.append([Measured(**each) for each in json.loads(line)])
                times = ", ".join(f"{each.cpu:.2f} CPU s {each.wall:.2f} s" for each in self.rounds[-1])
                print(f"{self.name}: {times}", flush=True)

    def best(self, index: int) -> Measured:
        """The least seconds of all rounds."""
        own = [each[index] for each in self.rounds]
        return Measured(min(each.cpu for each in own), min(each.wall for each in own), own[-1].wer)


def print_table(name: str, found: dict[str, Measured]) -> None:
    """A line for each system; times as multiples of the quickest peer's too."""
    peers = [each for system, each in found.items() if not system.startswith("attune")] or list(found.values())
    cpu, wall = min(each.cpu for each in peers), min(each.wall for each in peers)
    print(f"| {name} | CPU s | × quickest peer | wall s | × | WER |\n|---|---|---|---|---|---|")
    for system, each in found.items():
        times = f"{each.cpu:.2f} | {each.cpu / cpu:.2f} | {each.wall:.2f} | {each.wall / wall:.2f}"
        print(f"| {system} | {times} | {each.wer:.1f} % |", flush=True)


def answer_rounds(arguments: argparse.Namespace) -> None:
    """Load one system, then transcribe both sets for every line that comes."""
    import torch

    answers, sys.stdout = sys.stdout, sys.stderr  # what a peer prints is not an answer
    torch.set_num_threads(arguments.threads)
    sets = clips(arguments.data, arguments.clips), recording(arguments.data)
    with tempfile.TemporaryDirectory() as folder:
        transcribe = SYSTEMS[arguments.alone](arguments.model, arguments.threads, Path(folder))
        transcribe(sets[0][0][:1])
        print("ready", file=answers, flush=True)
        for _ in sys.stdin:
            print(json.dumps([asdict(timed(transcribe, *data)) for data in sets]), file=answers, flush=True)


def timed(transcribe: Transcribe, audio: list[Samples], texts: list[str]) -> Measured:
    """One set, once."""
    from attune.api import score

    began = time.process_time(), time.perf_counter()
    found = transcribe(audio)
    cpu, wall = time.process_time() - began[0], time.perf_counter() - began[1]
    return Measured(cpu, wall, score(texts, found, "english").values["wer"].value)


def clips(data: Path, count: int) -> tuple[list[Samples], list[str]]:
    """The first utterances of AN4's dev set."""
    from attune.api import load_audio

    rows = [json.loads(line) for line in (data / "an4/dev.jsonl").read_text().splitlines()][:count]
    return [load_audio(str(data / "an4" / row["audio"])) for row in rows], [row["text"] for row in rows]


def recording(data: Path) -> tuple[list[Samples], list[str]]:
    """All sentences joined, with pauses between them."""
    from attune.api import load_audio

    rows = json.loads((data / "sentences/sentences.json").read_text())
    pause = np.zeros(RATE // 2, np.float32)
    parts = [part for row in rows for part in (load_audio(str(data / "sentences" / row["audio"])), pause)]
    return [np.concatenate(parts)], [" ".join(row["text"] for row in rows)]


def attune_in(precision: DecodingPrecision) -> Callable[[Path, int, Path], Transcribe]:
    """A maker of attune's own recognizer."""

    def make(model: Path, threads: int, folder: Path) -> Transcribe:
        from attune.api import load

        recognizer = load(model, "cpu", language="en", precision=precision)
        return lambda audio: list(recognizer.transcribe(list(audio)))

    return make


def openai_whisper(model: Path, threads: int, folder: Path) -> Transcribe:
    """OpenAI's package, with the weights under the names it has for them."""
    import torch
    from safetensors.torch import load_file

    import whisper

    shape = json.loads((model / "config.json").read_text())
    dims = whisper.ModelDimensions(
        shape["num_mel_bins"], 1500, shape["d_model"], shape["encoder_attention_heads"], shape["encoder_layers"],
        shape["vocab_size"], 448, shape["d_model"], shape["decoder_attention_heads"], shape["decoder_layers"],
    )  # fmt: skip
    loaded = whisper.model.Whisper(dims)
    own = {openai_name(name): tensor for name, tensor in load_file(model / "model.safetensors").items()}
    loaded.load_state_dict({name: own[name] for name in loaded.state_dict()})
    loaded.eval()
    options = {"language": "en", "temperature": 0.0, "fp16": False, "condition_on_previous_text": False}
    with torch.inference_mode():
        return lambda audio: [loaded.transcribe(each, without_timestamps=True, **options)["text"] for each in audio]


def openai_name(name: str) -> str:
    """What OpenAI calls one of transformers' weights."""
    for theirs, ours in {
        "model.": "", "encoder.embed_positions.weight": "encoder.positional_embedding",
        "decoder.embed_positions.weight": "decoder.positional_embedding", "embed_tokens": "token_embedding",
        "encoder.layer_norm.": "encoder.ln_post.", "decoder.layer_norm.": "decoder.ln.", ".layers.": ".blocks.",
        ".encoder_attn_layer_norm": ".cross_attn_ln", ".encoder_attn": ".cross_attn",
        ".self_attn_layer_norm": ".attn_ln", ".self_attn": ".attn", ".final_layer_norm": ".mlp_ln",
        ".fc1": ".mlp.0", ".fc2": ".mlp.2", ".q_proj": ".query", ".k_proj": ".key", ".v_proj": ".value",
        ".out_proj": ".out",
    }.items():  # fmt: skip
        name = name.replace(theirs, ours)
    return name


def transformers_pipeline(model: Path, threads: int, folder: Path) -> Transcribe:
    """The pipeline in float32; a long recording by the timestamps that the model predicts, as it recommends."""
    import torch
    from transformers import pipeline

    pipe = pipeline("automatic-speech-recognition", str(model), device="cpu", dtype=torch.float32)
    options = {"language": "en", "task": "transcribe", "num_beams": 1}

    def transcribe(audio: Sequence[Samples]) -> list[str]:
        is_long = any(len(each) > 30 * RATE for each in audio)
        found = pipe([each.copy() for each in audio], generate_kwargs=options, return_timestamps=is_long, batch_size=16)  # type: ignore[arg-type]
        return [each["text"] for each in found]

    return transcribe


def faster_whisper(batch: int | None) -> Callable[[Path, int, Path], Transcribe]:
    """A maker of faster-whisper in int8, one window after the other or in batches."""

    def make(model: Path, threads: int, folder: Path) -> Transcribe:
        from ctranslate2.converters import TransformersConverter
        from faster_whisper import BatchedInferencePipeline, WhisperModel

        files = ["tokenizer.json", "preprocessor_config.json"]
        TransformersConverter(str(model), copy_files=files).convert(str(folder / "ct2"), quantization="int8")
        loaded = WhisperModel(str(folder / "ct2"), "cpu", compute_type="int8", cpu_threads=threads)
        options = {"language": "en", "beam_size": 1, "temperature": 0.0, "without_timestamps": True}
        more = {"batch_size": batch} if batch else {"condition_on_previous_text": False}
        run = BatchedInferencePipeline(loaded).transcribe if batch else loaded.transcribe
        return lambda audio: ["".join(part.text for part in run(one, **options, **more)[0]) for one in audio]

    return make


SYSTEMS: dict[str, Callable[[Path, int, Path], Transcribe]] = {
    "attune fp32": attune_in("fp32"),
    "attune int8": attune_in("int8"),
    "openai-whisper": openai_whisper,
    "transformers": transformers_pipeline,
    "faster-whisper int8": faster_whisper(None),
    "faster-whisper int8, batched": faster_whisper(16),
}

if __name__ == "__main__":
    main()
