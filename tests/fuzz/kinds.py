"""Damaged files by kind: what they are made of, how a number damages them, and the command that reads them.

A case is a function of its kind and number alone: `case("audio", 17)` is the same file on every machine.
"""

import contextlib
import gzip
import json
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import soundfile
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

from attune.testing import make_corpus

from fuzz import more_kinds as more
from fuzz.damage import flipped, respelled
from tiny_whisper import DIMS, openai_name, write_whisper
from transducers import golden_folder

RECIPE = """\
run: {folder}/run
seed: 17
data: {{train: [{manifest}], dev: [{manifest}], max_seconds: 20, min_seconds: 0.1, bad_rows: fail}}
task: {{name: transcribe, head: {{layers: 1, width: 8, dropout: 0.1}}}}
model: {{family: ssl}}
batches: {{micro_seconds: 8, micros_per_step: 2}}
optimizer: {{lr: 0.01, weight_decay: 0.01}}
train: {{steps: 12, warmup: 2, clip: 1.0, eval_every: 6, save_every: 3, keep_last: 2, keep_best: dev.wer, log_every: 1}}
"""


@dataclass(frozen=True)
class Kind:
    """`prepare` writes good files into a folder once; `damage` writes one bad one and returns the command."""

    prepare: Callable[[Path], None]
    damage: Callable[[Path, Random, Path], list[str]]
    quick: int  # cases of the normal tests


def _prepare_recipe(folder: Path) -> None:
    manifest = make_corpus(folder / "corpus", utterances=4)
    (folder / "recipe.yaml").write_text(RECIPE.format(folder=folder, manifest=manifest))


def _damage_recipe(folder: Path, random: Random, scratch: Path) -> list[str]:
    path = scratch / "recipe.yaml"
    path.write_bytes(respelled((folder / "recipe.yaml").read_text(), random))
    return [random.choice(("show", "check", "check")), str(path), f"run={scratch}/run"]


def _damage_manifest(folder: Path, random: Random, scratch: Path) -> list[str]:
    shutil.copytree(folder / "corpus/audio", scratch / "audio")
    text = (folder / "corpus/manifest.jsonl").read_text()
    suffix = random.choice((".jsonl", ".jsonl", ".csv", ".tsv"))
    if suffix != ".jsonl":
        rows = [json.loads(line) for line in text.splitlines()]
        comma = "," if suffix == ".csv" else "\t"
        lines = [comma.join(rows[0]), *(comma.join(map(str, row.values())) for row in rows)]
        text = "\n".join(lines) + "\n"
    path = scratch / f"manifest{suffix}"
    path.write_bytes(respelled(text, random))
    drops = [f"data.bad_rows={random.choice(('fail', 'drop'))}"]
    return ["check", str(folder / "recipe.yaml"), f"data.train=[{path}]", f"run={scratch}/run", *drops]


def _prepare_audio(folder: Path) -> None:
    _prepare_recipe(folder)
    sound = 0.1 * np.sin(np.arange(8000) / 9)
    for name, format, subtype in (
        *(("a.wav", "WAV", "PCM_16"), ("b.wav", "WAV", "FLOAT"), ("c.flac", "FLAC", "PCM_16"), ("d.mp3", "MP3", None)),
        *(
            ("e.ogg", "OGG", "VORBIS"),
            ("f.opus", "OGG", "OPUS"),
            ("g.wav", "WAV", "IMA_ADPCM"),
            ("h.sph", "NIST", None),
        ),
    ):
        soundfile.write(folder / name, sound, 16000, format=format, subtype=subtype)
    with contextlib.suppress(ImportError):
        _write_containers(folder, sound)


def _write_containers(folder: Path, sound: NDArray[np.float64]) -> None:
    import av

    for name, codec in (("i.m4a", "aac"), ("j.aac", "aac"), ("k.mka", "pcm_s16le"), ("l.mov", "alac")):
        with av.open(str(folder / name), "w", format={".aac": "adts", ".mka": "matroska"}.get(name[1:])) as file:
            stream = file.add_stream(codec, rate=16000, layout="mono")
            frame = av.AudioFrame.from_ndarray(sound[None].astype(np.float32), format="flt", layout="mono")
            frame.sample_rate = 16000
            own = av.AudioResampler(stream.format, "mono", 16000, stream.codec_context.frame_size or None)
            file.mux([packet for each in (*own.resample(frame), None) for packet in stream.encode(each)])


def _damage_audio(folder: Path, random: Random, scratch: Path) -> list[str]:
    """A corpus of several damaged recordings, which is decoded."""
    sources = sorted(path for path in folder.iterdir() if path.name[1:2] == ".")
    rows = []
    for number, source in enumerate(random.choices(sources, k=8)):
        path = scratch / f"{number}{source.suffix}"
        path.write_bytes(flipped(source.read_bytes(), random))
        length = {"seconds": random.choice((0.5, 0.5, 1e8))} if random.random() < 0.5 else {}
        rows.append({"audio": path.name, "text": "one", **length})
    manifest = scratch / "manifest.jsonl"
    manifest.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["--audio", "--workers", "1"] if random.random() < 0.4 else []
    drops = "data.bad_rows=drop"
    return ["check", str(folder / "recipe.yaml"), f"data.train=[{manifest}]", f"run={scratch}/run", drops, *words]


def _prepare_models(folder: Path) -> None:
    whisper = write_whisper(folder / "whisper")
    state = {openai_name(name): tensor for name, tensor in load_file(whisper / "model.safetensors").items()}
    torch.save({"dims": DIMS, "model_state_dict": state}, folder / "tiny.pt")
    torch.save(load_file(whisper / "model.safetensors"), folder / "whole.bin")
    for name in ("contextnet", "conformer"):
        shutil.copy(golden_folder(name) / "model.nemo", folder / f"{name}.nemo")


def _damage_model(folder: Path, random: Random, scratch: Path) -> list[str]:
    kind = random.choice(("nemo", "nemo", "config", "pt", "folder"))
    to = ["--to", str(scratch / "own")]
    if kind in ("nemo", "config"):
        source = folder / f"{random.choice(('contextnet', 'conformer'))}.nemo"
        return ["import", str(_damage_nemo(source, random, scratch, in_config=kind == "config")), *to]
    if kind == "pt":
        (scratch / "tiny.pt").write_bytes(flipped((folder / "tiny.pt").read_bytes(), random))
        return ["import", str(scratch / "tiny.pt"), *to, "--tokenizer", str(folder / "whisper/tokenizer.json")]
    model = shutil.copytree(folder / "whisper", scratch / "whisper")
    if random.random() < 0.3:
        (model / "model.safetensors").unlink()
        shutil.copy(folder / "whole.bin", model / "pytorch_model.bin")
    victim = model / random.choice(sorted(path.name for path in model.iterdir()))
    is_text = victim.name == "config.json"
    victim.write_bytes(respelled(victim.read_text(), random) if is_text else flipped(victim.read_bytes(), random))
    return ["import", str(model), *to]


def _damage_nemo(source: Path, random: Random, scratch: Path, in_config: bool) -> Path:
    path = scratch / "model.nemo"
    if not in_config and random.random() < 0.5:
        content = source.read_bytes()
        path.write_bytes(flipped(content if random.random() < 0.5 else gzip.compress(content, 1), random))
        return path
    with tarfile.open(source) as tar, tarfile.open(path, random.choice(("w:", "w:gz"))) as out:
        members = [member for member in tar if member.isfile()]
        victim = next(each for each in members if each.name.endswith(".yaml")) if in_config else random.choice(members)
        for member in members:
            file = tar.extractfile(member)
            content = file.read() if file else b""
            if member is victim:
                content = respelled(content.decode(), random) if in_config else flipped(content, random)
            written = tarfile.TarInfo(member.name)
            written.size = len(content)
            (scratch / "member").write_bytes(content)
            with (scratch / "member").open("rb") as again:
                out.addfile(written, again)
    return path


def _prepare_predictions(folder: Path) -> None:
    rows = [{"id": f"u{each}", "value": "one two", "reference": "one too", "score": -1.5} for each in range(5)]
    (folder / "predictions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def _damage_predictions(folder: Path, random: Random, scratch: Path) -> list[str]:
    path = scratch / "predictions.jsonl"
    path.write_bytes(respelled((folder / "predictions.jsonl").read_text(), random))
    options = random.choice(([], ["--json"], ["--task", "classify"], ["--alignments", str(scratch / "errors.txt")]))
    return ["score", str(path), *options]


KINDS = {
    "recipes": Kind(_prepare_recipe, _damage_recipe, 40),
    "manifests": Kind(_prepare_recipe, _damage_manifest, 25),
    "audio": Kind(_prepare_audio, _damage_audio, 15),
    "models": Kind(_prepare_models, _damage_model, 40),
    "predictions": Kind(_prepare_predictions, _damage_predictions, 100),
    "upstreams": Kind(more.prepare_upstreams, more.damage_upstream, 15),
    "shards": Kind(more.prepare_shards, more.damage_shards, 15),
    "corpora": Kind(more.prepare_corpora, more.damage_corpus, 30),
    "runs": Kind(more.prepare_run, more.damage_run, 15),
    "numbers": Kind(more.prepare_recipe, more.damage_numbers, 15),
}
