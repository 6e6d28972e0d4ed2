"""Damaged runs, shards and checkpoints of upstreams, and trainings with extreme numbers."""

import contextlib
import gzip
import io
import shutil
import tarfile
from pathlib import Path
from random import Random

import pytest
import torch

from attune import catalog
from attune.cli import main
from attune.corpora import CORPORA
from attune.testing import make_corpus

import miniatures
from fuzz.damage import flipped, respelled
from tiny_upstreams import make_encoder, save_s3prl

SMALL = """\
run: {folder}/run
seed: 17
data: {{train: [{manifest}], dev: [{manifest}], test: [{manifest}]}}
task: {{name: transcribe, head: {{layers: 1, width: 8, dropout: 0.1}}}}
model: {{family: ssl}}
batches: {{micro_utterances: 2, micros_per_step: 1}}
optimizer: {{lr: 0.01}}
train: {{steps: 2, warmup: 1, eval_every: 1, save_every: 1, keep_best: dev.wer, log_every: 1}}
"""
QUICK = ("--workers=0", "--device=cpu")
CORPUS_NAMES = {"fluent_speech_commands": "fluent", "csv": "csv_files", "mini_librispeech": ""}  # of what makes them
SOUNDS = (".wav", ".flac", ".mp3", ".sph")
COUNTS = ("1", "2", "3", "100", "65537", "999999999")
SMALL_SPANS = ("1e-300", "1e-38", "1e-8", "0.5", "1")
SPANS = (*SMALL_SPANS, "100", "1e9", "1e20", "1e38", "1e300")
NUMBERS = {
    "optimizer.lr": (*SMALL_SPANS, "100", "1e300"),
    "optimizer.weight_decay": ("0", *SMALL_SPANS, "100"),
    "optimizer.layer_decay": SMALL_SPANS,
    "optimizer.betas": ("[0, 0]", "[0.999999999, 0.999999999]", "[0, 0.9999999999999999]"),
    "optimizer.name": ("adamw8bit", "adafactor", "bitsandbytes"),
    "train.warmup": ("0", *COUNTS),
    "train.clip": SPANS,
    "train.precision": ("bf16", "fp16"),
    "train.restart_every": ("1",),
    "train.eval_utterances": COUNTS,
    "train.patience": COUNTS,
    "train.average": COUNTS,
    "train.log_every": COUNTS,
    "batches.micros_per_step": ("1", "7", "1000", "1000000", "999999999"),
    "batches.micro_utterances": COUNTS,
    "data.max_seconds": SPANS,
    "data.min_seconds": SPANS,
    "task.head.dropout": ("1e-300", "0.5", "0.9999999999999999"),
    "augment.speeds": ("[0.5, 2.0]", "[0.5000000001]"),
    "augment.masks.time_masks": ("0", *COUNTS),
    "augment.masks.frequency_bins": COUNTS,
    "decode.final": ("{search: beam, beam: 1}", "{search: beam, beam: 100}", "{search: beam, beam: 10000}"),
    "seed": ("0", "-1", str(2**31), str(2**63 - 1), str(2**64), "9" * 40),
}


def prepare_recipe(folder: Path) -> None:
    """A corpus and a recipe of two steps."""
    manifest = make_corpus(folder / "corpus", utterances=4)
    (folder / "recipe.yaml").write_text(SMALL.format(folder=folder, manifest=manifest))


def damage_numbers(folder: Path, random: Random, scratch: Path) -> list[str]:
    """A training with one to three extreme settings."""
    keys = random.sample(sorted(NUMBERS), random.choice((1, 1, 2, 3)))
    words = [f"{key}={random.choice(NUMBERS[key])}" for key in keys]
    if "batches.micro_utterances" not in keys and random.random() < 0.2:
        words += ["batches.micro_utterances=null", f"batches.micro_seconds={random.choice(SPANS)}"]
    return ["train", str(folder / "recipe.yaml"), f"run={scratch}/run", *words, *QUICK]


def prepare_run(folder: Path) -> None:
    """A finished run."""
    prepare_recipe(folder)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        assert main(["train", str(folder / "recipe.yaml"), *QUICK]) == 0


def damage_run(folder: Path, random: Random, scratch: Path) -> list[str]:
    """A file of a run damaged, emptied, removed or doubled, and a command that reads the run."""
    run = Path(shutil.copytree(folder / "run", scratch / "run", symlinks=True))
    if random.random() < 0.3:
        (run / "status.json").write_text((run / "status.json").read_text().replace("done", "running"))
    for _ in range(random.choice((1, 1, 2))):
        _damage_one(random.choice(sorted(path for path in run.rglob("*") if path.is_file())), random)
    data = str(folder / "corpus/audio/00000.wav")
    return random.choice(
        [
            ["train", str(folder / "recipe.yaml"), f"run={run}", *QUICK],
            ["train", str(folder / "recipe.yaml"), f"run={run}", "train.steps=3", "--reschedule", *QUICK],
            ["evaluate", str(run), "--on", "dev", *QUICK],
            ["evaluate", str(run / "model"), "--on", "dev", *QUICK],
            ["transcribe", str(run), data, "--device=cpu"],
            ["export", str(run), "--to", str(scratch / "exported")],
            ["average", str(run), "--to", str(scratch / "averaged")],
            ["show", str(run / "recipe.yaml")],
            ["score", str(run / "predictions/test.jsonl")],
            ["push", str(run), f"file://{scratch}/pushed"],
        ]
    )


def _damage_one(victim: Path, random: Random) -> None:
    content = victim.read_bytes()
    match random.randrange(8):
        case 0:
            victim.unlink()
        case 1:
            victim.write_bytes(b"")
        case 2:
            shutil.copytree(victim.parent, victim.parent.with_name(f"{victim.parent.name}-copy"), dirs_exist_ok=True)
        case 3:
            victim.write_bytes(content[: random.randrange(len(content) + 1)])
        case _ if victim.suffix in (".json", ".jsonl", ".yaml", ".txt"):
            victim.write_bytes(respelled(content.decode(errors="replace"), random))
        case _:
            victim.write_bytes(flipped(content, random))


def prepare_shards(folder: Path) -> None:
    """Two shards, each with four samples."""
    prepare_recipe(folder)
    for name in ("0.tar", "1.tar"):
        with tarfile.open(folder / name, "w") as archive:
            for key in "abcd":
                miniatures.put(archive, f"{key}{name[0]}.flac", miniatures.encoded(0.5))
                miniatures.put(archive, f"{key}{name[0]}.json", b'{"text": "one two"}')


def damage_shards(folder: Path, random: Random, scratch: Path) -> list[str]:
    """A shard or a member of it damaged; prepared, or streamed by a training."""
    for name in ("0.tar", "1.tar"):
        shutil.copy(folder / name, scratch)
    victim = scratch / random.choice(("0.tar", "1.tar"))
    victim.write_bytes(flipped(victim.read_bytes(), random))
    if random.random() < 0.4:
        return ["prepare", "shards", "--from", str(scratch), "--to", str(scratch / "prepared")]
    rows = f"data.bad_rows={random.choice(('fail', 'drop'))}"
    data = [f"data.train=['{scratch}/{{0..1}}.tar']", "data.dev=[]", "data.test=[]"]
    quiet = ["train.keep_best=null", "train.eval_every=null", "train.warmup=0", rows, *QUICK]
    return ["train", str(folder / "recipe.yaml"), f"run={scratch}/run", *data, *quiet]


def prepare_corpora(folder: Path) -> None:
    """Published corpora of a few recordings, each in a folder with its name."""
    for name in catalog.names(CORPORA):
        make = getattr(miniatures, CORPUS_NAMES.get(name, name), None)
        if make:
            make(folder / name)


def damage_corpus(folder: Path, random: Random, scratch: Path) -> list[str]:
    """A list or a recording of a corpus damaged, and prepared as that corpus or as whatever it seems to be."""
    corpus = random.choice(sorted(path.name for path in folder.iterdir()))
    source = Path(shutil.copytree(folder / corpus, scratch / corpus))
    files = sorted(path for path in source.rglob("*") if path.is_file())
    lists = [path for path in files if path.suffix not in SOUNDS]
    victim = random.choice(lists if lists and random.random() < 0.85 else files)
    content = victim.read_bytes()
    if victim.suffix == ".gz" and random.random() < 0.7:
        victim.write_bytes(gzip.compress(respelled(gzip.decompress(content).decode(), random), mtime=0))
    elif victim in lists and victim.suffix != ".gz" and random.random() < 0.8:
        victim.write_bytes(respelled(content.decode(errors="replace"), random))
    else:
        victim.write_bytes(flipped(content, random))
    name = random.choice((corpus, corpus, "auto"))
    return ["prepare", name, "--from", str(source), "--to", str(scratch / "prepared")]


def prepare_upstreams(folder: Path) -> None:
    """Self-supervised encoders as transformers and S3PRL write them, and a SpeechBrain model where there is one."""
    prepare_recipe(folder)
    for name in ("wav2vec2", "wavlm"):
        make_encoder(name).save_pretrained(folder / name)
    torch.save(make_encoder("hubert").state_dict(), folder / "hubert.bin")
    make_encoder("hubert").save_pretrained(folder / "hubert")
    (folder / "hubert/model.safetensors").unlink()
    (folder / "hubert.bin").rename(folder / "hubert/pytorch_model.bin")
    save_s3prl("tera", folder / "tera.ckpt")
    for parent in Path(__file__).resolve().parents:
        if (parent / "shared/fixtures/speechbrain-crdnn").is_dir():
            names = ("asr.ckpt", "lm.ckpt", "normalizer.ckpt", "tokenizer.ckpt", "hyperparams.yaml")
            (folder / "crdnn").mkdir()
            for each in names:
                shutil.copy(parent / "shared/fixtures/speechbrain-crdnn" / each, folder / "crdnn")
            break
    else:
        pytest.skip("needs the golden files speechbrain-crdnn")


def damage_upstream(folder: Path, random: Random, scratch: Path) -> list[str]:
    """A file of a checkpoint damaged, and the command that reads it."""
    name = random.choice(("wav2vec2", "wavlm", "hubert", "tera", "crdnn", "crdnn"))
    if name == "tera":
        source = scratch / "tera.ckpt"
        source.write_bytes(flipped((folder / "tera.ckpt").read_bytes(), random))
    else:
        source = Path(shutil.copytree(folder / name, scratch / name))
        victim = random.choice(sorted(source.iterdir()))
        is_text = victim.suffix in (".json", ".yaml")
        victim.write_bytes(respelled(victim.read_text(), random) if is_text else flipped(victim.read_bytes(), random))
    if name == "crdnn":
        return ["import", str(source), "--to", str(scratch / "own")]
    model = [f"model.upstream={name}", f"model.weights={source}"]
    return ["check", str(folder / "recipe.yaml"), f"run={scratch}/run", "--no-audio", *model]
