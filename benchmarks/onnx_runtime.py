"""Does a model that was exported for ONNX Runtime find attune's own tokens in recordings, and how fast is it?

    python benchmarks/onnx_runtime.py MODEL MANIFEST [--rows 30] [--language en]

MODEL is a run, a model folder or its URL; MANIFEST a .jsonl file with `audio`. The graphs are run row by row under
attune's searches, so both emit tokens under the same rules; attune decodes row by row too. CPU seconds, on one thread:
of attune all of it, of ONNX Runtime what its sessions take.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import onnxruntime
import torch

from attune.api import load, load_audio
from attune.batches.collate import collate
from attune.contracts import SpeechModel
from attune.decoding.search import Search, decode_batch
from attune.publishing.onnx import export_onnx
from attune.publishing.onnx_model import OnnxModel
from attune.site import this_site
from attune.types import LoadedRow, Utterance, require_hypothesis


@dataclass(slots=True)
class TimedSession:
    """A session that adds up its CPU seconds."""

    session: Any
    seconds: float = 0.0

    def run(self, names: None, inputs: Mapping[str, object]) -> list[Any]:
        """All outputs."""
        began = time.process_time()
        found: list[Any] = self.session.run(names, inputs)
        self.seconds += time.process_time() - began
        return found


def main() -> None:
    """Export, decode with both, and print one line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--rows", type=int, default=30)
    parser.add_argument("--language")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = [json.loads(line) for line in arguments.manifest.read_text().splitlines()][: arguments.rows]
    audio = [load_audio(str(arguments.manifest.parent / row["audio"])) for row in rows]
    model = load(arguments.model, "cpu", language=arguments.language).loaded.task_model
    prompt = model.codec.prompt(Utterance("", 1.0))
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        check = export_onnx(arguments.model, Path(folder) / "onnx", this_site(device="cpu")).check
        sessions = {path.stem: timed_session(path) for path in (Path(folder) / "onnx").glob("*.onnx")}
        theirs = replace(model, model=cast(SpeechModel, OnnxModel(model.model, sessions)))
        differing, own = 0, 0.0
        for samples in audio:
            batch = collate([LoadedRow("0", samples, prompt)])
            began = time.process_time()
            (one,) = decode_batch(model, batch, Search())
            own += time.process_time() - began
            (other,) = decode_batch(theirs, batch, Search())
            differing += require_hypothesis(one).tokens != require_hypothesis(other).tokens
    seconds = sum(each.seconds for each in sessions.values())
    print(
        f"{len(audio)} recordings: {differing} with other tokens; attune {own:.2f} CPU s, ONNX Runtime {seconds:.2f};"
    )
    print(f"scores of synthetic samples differ by at most {check.largest_difference:.1e}")


def timed_session(path: Path) -> TimedSession:
    """On one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return TimedSession(onnxruntime.InferenceSession(str(path), options))


if __name__ == "__main__":
    main()
