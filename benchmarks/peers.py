"""Compare attune with whichever peers are installed, and print one table: what, with whom, how far apart.

    python benchmarks/peers.py [--only transformers,jiwer]

Everything is made here, from a seed: random texts, noise, models with random weights. A peer that is not installed is
listed as such. Exits with 1 where a difference is larger than rounding explains. Peers: transformers, peft,
bitsandbytes, torchaudio, jiwer, kenlm, pyctcdecode, NeMo; and sclite, if it is on the PATH.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

WORDS = (
    *("one", "two", "three", "the", "a", "house", "Mr.", "colour"),
    *("don't", "£5", "twenty", "1,000", "naïve", "…", "x-ray"),
)


@dataclass(frozen=True)
class Found:
    """One comparison: how far apart, of how many, and the most that rounding explains."""

    what: str
    difference: float
    of: str
    most: float = 0.0


Check = Callable[[], Iterator[Found]]


def texts(count: int, seed: int = 0) -> list[str]:
    """Sentences with case, punctuation, numbers and accents."""
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(1, 9))) + rng.choice(["", ".", "?!"]) for _ in range(count)]


def noise(seconds: float, seed: int = 0) -> Tensor:
    """Audio that no frame of which is silent."""
    return 0.1 * torch.randn(round(16_000 * seconds), generator=torch.Generator().manual_seed(seed))


def farthest(one: Tensor, other: Tensor) -> float:
    """The largest difference of two numbers at the same place."""
    return float((one.double() - other.double()).abs().max())


def with_transformers() -> Iterator[Found]:
    """Whisper's features and normalizers, Adafactor, Parakeet's encoder and generation."""
    from transformers import WhisperFeatureExtractor
    from transformers.models.whisper.english_normalizer import BasicTextNormalizer, EnglishTextNormalizer

    from attune.families.whisper.features import log_mel
    from attune.text.normalizers import _english_rules, whisper_basic
    from attune.text.normalizers._english_spelling import american_spellings

    for bins in (80, 128):
        audio = noise(3.7)
        ours = log_mel(audio[None], torch.tensor([len(audio)]), bins, 3000)[0]
        theirs = WhisperFeatureExtractor(bins)(audio.numpy(), sampling_rate=16_000, return_tensors="pt").input_features  # type: ignore[no-untyped-call]
        yield Found(f"Whisper features, {bins} bins", farthest(ours, theirs[0]), "largest difference", 1e-5)
    spellings = american_spellings()
    english, basic, lines = EnglishTextNormalizer(spellings), BasicTextNormalizer(), texts(2000)  # type: ignore[no-untyped-call]
    wrong = sum(_english_rules.normalize(line, spellings) != english(line) for line in lines)
    yield Found("English normalizer", wrong, f"of {len(lines)} texts")
    wrong = sum(whisper_basic.normalize(line) != basic(line) for line in lines)
    yield Found("Whisper's basic normalizer", wrong, f"of {len(lines)} texts")
    yield _adafactor()
    yield from _parakeet()


def _adafactor() -> Found:
    from transformers.optimization import Adafactor

    from attune.training.optimizer import make_optimizer

    def trained(make: Callable[[nn.Module], torch.optim.Optimizer]) -> Tensor:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv1d(3, 4, 3), nn.Tanh(), nn.Linear(6, 5))
        with torch.no_grad():
            next(net[2].parameters()).mul_(20)  # a size that other Adafactors would multiply the rate by
        optimizer = make(net)
        for _ in range(20):
            optimizer.zero_grad()
            net(torch.randn(2, 3, 8)).pow(2).sum().backward()
            optimizer.step()
        return torch.cat([parameter.detach().flatten() for parameter in net.parameters()])

    fixed = {"scale_parameter": False, "relative_step": False, "warmup_init": False}
    theirs = trained(lambda net: Adafactor(net.parameters(), lr=1e-2, **fixed))  # type: ignore[no-untyped-call]
    ours = trained(lambda net: make_optimizer("adafactor", net, 1e-2, 0.0, (0.9, 0.98)))
    return Found("Adafactor, 20 steps", farthest(ours, theirs), "largest difference", 1e-4)


def _parakeet() -> Iterator[Found]:
    from transformers import ParakeetForRNNT, ParakeetForTDT

    from attune.batches.collate import collate
    from attune.decoding.search import Search, search
    from attune.families.transducer.model import TransducerModel
    from attune.families.transducer.parakeet import write_parakeet
    from attune.families.transducer.presets import preset
    from attune.families.transducer.settings import TransducerConfig
    from attune.families.transducer.shape import read_shape
    from attune.text.tokenizers.sentencepiece import SentencePieceTokenizer
    from attune.types import LoadedRow, require_hypothesis

    tokenizer = SentencePieceTokenizer.learn([line.lower() for line in texts(200)], "bpe", 60)
    pieces = tokenizer.pieces[1:]
    for durations, kind in (((), ParakeetForRNNT), ((0, 1, 2, 3, 4), ParakeetForTDT)):
        torch.manual_seed(2)
        settings = TransducerConfig(encoder="fastconformer", size="dummy", tokens="task", durations=durations)
        described = preset(settings)
        model = TransducerModel(read_shape(described), pieces, described).eval()
        wrong, apart = 0, 0.0
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            model.joint.output.weight.mul_(3)
            model.joint.output.bias[len(pieces) + 1 :] += 20  # durations above every token
            write_parakeet(model, tokenizer.without_blank(), Path(folder))
            theirs = kind.from_pretrained(folder).eval()  # type: ignore[no-untyped-call]
            for seed in range(10):
                batch = collate([LoadedRow("", noise(1 + 0.2 * seed, seed).numpy(), (1,))])
                mels, counts = model.preprocessor(batch.audio, batch.lengths)
                mask = torch.arange(mels.shape[2])[None] < counts[:, None]
                inputs = {"input_features": mels.transpose(1, 2), "attention_mask": mask}
                generated = theirs.generate(**inputs, max_new_tokens=400).sequences[0].tolist()
                (found,) = search(model.scorer(batch), Search())
                wrong += [token for token in generated if token != len(pieces)] != [*require_hypothesis(found).tokens]
                states = theirs.get_audio_features(**inputs).last_hidden_state
                apart = max(apart, farthest(states, model.encode(batch)[0]))
        yield Found(f"{kind.__name__}, encoder", apart, "largest difference", 1e-4)
        yield Found(f"{kind.__name__}, generate", wrong, "of 10 transcripts")


def with_peft() -> Iterator[Found]:
    """LoRA, merged into the weights."""
    import copy

    from peft import LoraConfig, get_peft_model

    from attune.training.adapt import adapt, merge_lora
    from attune.training.settings import AdaptConfig

    torch.manual_seed(0)
    plain = nn.ModuleDict({"q_proj": nn.Linear(24, 16), "v_proj": nn.Linear(16, 8)})
    ours, settings = copy.deepcopy(plain), AdaptConfig(method="lora", rank=4, alpha=8, targets=("q_proj", "v_proj"))
    adapt(ours, settings, seed=1)
    state = {name: torch.randn_like(value) if "lora" in name else value for name, value in ours.state_dict().items()}
    merged = merge_lora(state, settings)
    theirs = get_peft_model(copy.deepcopy(plain), LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"]))
    for name, value in theirs.named_parameters():
        own = [tensor for key, tensor in state.items() if _same_lora(key, name)]
        if own:
            value.data.copy_(own[0])
    reference = theirs.merge_and_unload().state_dict()
    apart = max(farthest(merged[name], reference[name]) for name in plain.state_dict())
    yield Found("LoRA, merged", apart, "largest difference", 1e-6)


def _same_lora(ours: str, theirs: str) -> bool:
    """Whether these are the same addition to the same layer."""

    def key(name: str) -> tuple[str | None, ...]:
        return tuple(match and match[0] for match in (re.search(p, name) for p in (r"[qv]_proj", r"lora_[AB]")))

    return "lora" in theirs and key(ours) == key(theirs)


def with_bitsandbytes() -> Iterator[Found]:
    """Its 8-bit AdamW, whose update `optimizer.name: bitsandbytes` calls."""
    from bitsandbytes.optim.adamw import AdamW8bit

    from attune.training.optimizer import make_optimizer

    def trained(make: Callable[[nn.Module], torch.optim.Optimizer]) -> Tensor:
        torch.manual_seed(0)
        net = nn.Linear(64, 128, bias=False)
        optimizer = make(net)
        for _ in range(10):
            optimizer.zero_grad()
            net(torch.randn(8, 64)).square().sum().backward()
            optimizer.step()
        return net.weight.detach()

    ours = trained(lambda net: make_optimizer("bitsandbytes", net, 1e-3, 0.01, (0.9, 0.98)))
    theirs = trained(lambda net: AdamW8bit(net.parameters(), 1e-3, (0.9, 0.98), weight_decay=0.01))  # type: ignore[no-untyped-call]
    yield Found("8-bit AdamW, 10 steps", farthest(ours, theirs), "largest difference")


def with_torchaudio() -> Iterator[Found]:
    """The transducer loss and its gradient."""
    from torchaudio.functional import rnnt_loss

    from attune.kernels.transducer import Lattice, transducer_loss

    torch.manual_seed(0)
    encoded, predicted = torch.randn(3, 20, 16, requires_grad=True), torch.randn(3, 8, 16, requires_grad=True)
    weight, bias = torch.randn(11, 16), torch.randn(11)
    targets, lengths, labels = torch.randint(0, 10, (3, 7)), torch.tensor([20, 13, 9]), torch.tensor([7, 5, 2])
    ours = transducer_loss(encoded, predicted, weight, bias, targets, lengths, labels, Lattice(blank=10))
    logits = torch.relu(encoded[:, :, None] + predicted[:, None]) @ weight.T + bias
    theirs = rnnt_loss(logits, targets.int(), lengths.int(), labels.int(), blank=10, reduction="none")
    yield Found("RNN-T loss", farthest(ours, theirs), "largest difference", 1e-3)
    (one,), (other,) = (torch.autograd.grad(loss.sum(), encoded, retain_graph=True) for loss in (ours, theirs))
    yield Found("RNN-T loss, gradient", farthest(one, other), "largest difference", 1e-4)


def with_jiwer() -> Iterator[Found]:
    """WER and CER."""
    import jiwer

    from attune.scoring.error_rates import score_texts

    references, hypotheses = texts(500, 1), texts(500, 2)
    found = score_texts(references, hypotheses).values
    yield Found("WER", abs(found["wer"].value - 100 * jiwer.wer(references, hypotheses)), "points, 500 texts", 1e-9)
    yield Found("CER", abs(found["cer"].value - 100 * jiwer.cer(references, hypotheses)), "points, 500 texts", 1e-9)


def with_sclite() -> Iterator[Found]:
    """Error counts. Its alignment weighs a substitution 4 and others 3: not always that of the fewest errors."""
    references, others = ([re.sub(r"[^a-z ]", "", line.lower()) for line in texts(200, seed)] for seed in (1, 2))
    for what, hypotheses, share in (
        ("errors, a word in five wrong", [_with_errors(line, seed) for seed, line in enumerate(references)], 0.0),
        ("errors, unrelated texts, where its weights tell", others, 0.005),
    ):
        ours = sum(_errors(*pair) for pair in zip(references, hypotheses, strict=True))
        yield Found(what, abs(ours - _sclite_errors(references, hypotheses)), f"of {ours}", share * ours)


def _errors(reference: str, hypothesis: str) -> int:
    from attune.scoring.edits import count

    found = count(reference.split(), hypothesis.split())
    return found.substitutions + found.deletions + found.insertions


def _with_errors(text: str, seed: int) -> str:
    """The text with some words lost, doubled or replaced."""
    rng = random.Random(seed)
    changes = [lambda word: "", lambda word: f"{word} {word}", lambda word: "else"]
    return " ".join(rng.choice(changes)(word) if rng.random() < 0.2 else word for word in text.split())  # type: ignore[no-untyped-call]


def _sclite_errors(references: list[str], hypotheses: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        for name, column in (("ref", references), ("hyp", hypotheses)):
            Path(folder, name).write_text("".join(f"{line} (s_{number})\n" for number, line in enumerate(column)))
        files = [*("-r", f"{folder}/ref", "trn"), *("-h", f"{folder}/hyp", "trn")]
        words = ["sclite", *files, "-i", "rm", "-o", "rsum", "stdout"]
        printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    row = next(line for line in printed.splitlines() if line.lstrip("| ").startswith("Sum"))
    return int(re.findall(r"\d+", row)[-2])


def with_kenlm() -> Iterator[Found]:
    """The log-probabilities of an ARPA file."""
    import kenlm

    from attune.decoding.ngram import read_arpa

    pieces = ("a", "b", "c")
    arpa = (
        "\\data\\\nngram 1=6\nngram 2=3\n\n\\1-grams:\n-99\t<s>\t-0.3\n-1.0\t</s>\n-2.0\t<unk>\n-0.7\ta\t-0.2\n"
        "-0.5\tb\t-0.4\n-0.9\tc\n\n\\2-grams:\n-0.2\t<s> a\n-0.3\ta b\n-0.4\tb c\n\n\\end\\\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "lm.arpa")
        path.write_text(arpa)
        theirs, ours = kenlm.Model(str(path)), read_arpa(path, pieces, torch.device("cpu"))
    rng, apart = random.Random(0), 0.0
    for _ in range(200):
        sequence = rng.choices(range(3), k=rng.randint(1, 8))
        log_probs, states = ours.start(1)
        total = 0.0
        for token in sequence:
            total += float(log_probs[0, token])
            log_probs, states = ours.score(torch.tensor([token]), states)
        expected = theirs.score(" ".join(pieces[token] for token in sequence), bos=True, eos=False)
        apart = max(apart, abs(total / float(np.log(10)) - expected))
    yield Found("n-gram log-probabilities", apart, "of 200 sequences", 1e-5)


def with_pyctcdecode() -> Iterator[Found]:
    """CTC beams without a language model, wide enough to keep everything."""
    yield Found("CTC beam", _other_texts(("", "a", "b", "c")), "of 100 transcripts")
    # It adds up what differs by spaces at the ends and by double ones alone; attune's hypotheses are label sequences.
    wrong = _other_texts(("", "a", "b", " "))
    yield Found("CTC beam with a space, hypotheses of the same words added up", wrong, "of 100 transcripts")


def _other_texts(letters: tuple[str, ...]) -> int:
    """How often the most probable text of random outputs, whatever its spaces, is not pyctcdecode's."""
    from pyctcdecode import build_ctcdecoder

    from attune.decoding.search import Search, search
    from attune.types import CtcScorer, require_hypothesis

    decoder, wrong = build_ctcdecoder([*letters]), 0
    wide = {"beam_width": 5000, "beam_prune_logp": -100.0, "token_min_logp": -100.0}
    for seed in range(100):
        log_probs = (2 * torch.randn(8, 4, generator=torch.Generator().manual_seed(seed))).log_softmax(-1)
        (output,) = search(CtcScorer(log_probs[None], torch.tensor([8])), Search("beam", 5000, nbest=5000))
        best, sums = require_hypothesis(output), Counter[str]()
        for each in (best, *best.nbest):
            sums[" ".join("".join(letters[token] for token in each.tokens).split())] += np.exp(each.score)
        # With its history pruned, hypotheses of the same last word would be dropped instead of added up.
        theirs = decoder.decode_beams(log_probs.numpy(), prune_history=False, **wide)[0][0]
        wrong += max(sums, key=sums.__getitem__) != theirs
    return wrong


def with_nemo() -> Iterator[Found]:
    """Its front end, as FastConformers have it, and its beams."""
    from nemo.collections.asr.modules import AudioToMelSpectrogramPreprocessor

    from attune.families.transducer.front_end import FrontEnd
    from attune.families.transducer.presets import preset
    from attune.families.transducer.settings import TransducerConfig
    from attune.families.transducer.shape import read_shape

    described: Any = preset(TransducerConfig(encoder="fastconformer", size="dummy", tokens="task"))
    settings = {name: value for name, value in described["preprocessor"].items() if not name.startswith("_")}
    theirs = AudioToMelSpectrogramPreprocessor(**{**settings, "dither": 0.0}).eval()
    audio = noise(2.5)[None]
    lengths = torch.tensor([audio.shape[1]])
    expected, _ = theirs(input_signal=audio, length=lengths)
    ours, counts = FrontEnd(read_shape(described).front_end).eval()(audio, lengths)
    count = int(counts[0])
    yield Found("log-mel features", farthest(ours[..., :count], expected[..., :count]), "largest difference", 1e-4)
    yield Found("RNN-T, beam 4", sum(_other_beams((), seed) for seed in range(10)), "of 100 transcripts")
    # The guide says what differs: endings beyond the last frame, and blanks of no duration (here improbable).
    tdt = sum(_other_beams((0, 1, 2, 3, 4), seed) for seed in range(10))
    yield Found("TDT, beam 4", tdt, "of 100 transcripts", 10)


def _other_beams(durations: tuple[int, ...], seed: int) -> int:
    """How many of ten best hypotheses are not those of NeMo's `malsd_batch`, for a model with random weights."""
    from nemo.collections.asr.modules import RNNTDecoder, RNNTJoint
    from nemo.collections.asr.parts.submodules.rnnt_beam_decoding import BeamBatchedRNNTInfer
    from nemo.collections.asr.parts.submodules.tdt_beam_decoding import BeamBatchedTDTInfer

    from attune.decoding.search import Search, search
    from attune.families.transducer.model import TransducerModel
    from attune.families.transducer.names import to_nemo
    from attune.families.transducer.presets import preset
    from attune.families.transducer.settings import TransducerConfig
    from attune.families.transducer.shape import read_shape
    from attune.types import require_hypothesis

    torch.manual_seed(seed)
    config = TransducerConfig(encoder="fastconformer", size="dummy", tokens="task", durations=durations)
    described: Any = preset(config)
    model = TransducerModel(read_shape(described), tuple("abcdefgh"), described).eval()
    blank = len("abcdefgh")
    with torch.no_grad():
        model.joint.output.weight.mul_(4)
        model.joint.output.bias[blank] += 2
        model.joint.output.bias[blank + 1 : blank + 2] -= 6  # a duration of 0
    decoder = RNNTDecoder(described["decoder"]["prednet"], blank).eval()
    joint = RNNTJoint(described["joint"]["jointnet"], blank, num_extra_outputs=len(durations)).eval()
    weights = to_nemo(model.state_dict(), model.shape)
    for module, prefix in ((decoder, "decoder."), (joint, "joint.")):
        own = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
        module.load_state_dict(own)
    settings = {"blank_index": blank, "beam_size": 4, "max_symbols_per_step": 10, "allow_cuda_graphs": False}
    kind = partial(BeamBatchedTDTInfer, durations=[*durations]) if durations else BeamBatchedRNNTInfer
    frames, lengths = 3 * torch.randn(10, 20, 48), torch.arange(11, 21)
    with torch.no_grad():
        theirs = kind(decoder, joint, **settings)(encoder_output=frames.transpose(1, 2), encoded_lengths=lengths)[0]
        ours = search(model._scorer(frames, lengths), Search("beam", 4))
    pairs = zip(ours, theirs, strict=True)
    return sum([*require_hypothesis(each).tokens] != [*map(int, other.y_sequence)] for each, other in pairs)


PEERS: dict[str, tuple[str, Check]] = {
    "transformers": ("transformers", with_transformers),
    "peft": ("peft", with_peft),
    "bitsandbytes": ("bitsandbytes", with_bitsandbytes),
    "torchaudio": ("torchaudio", with_torchaudio),
    "jiwer": ("jiwer", with_jiwer),
    "sclite": ("", with_sclite),
    "kenlm": ("kenlm", with_kenlm),
    "pyctcdecode": ("pyctcdecode", with_pyctcdecode),
    "NeMo": ("nemo", with_nemo),
}
PACKAGES = {"nemo": "nemo-toolkit"}


def is_there(peer: str, module: str) -> bool:
    """Whether a peer can be compared with."""
    return bool(find_spec(module) if module else shutil.which(peer))


def version_of(module: str) -> str:
    """The version of an installed peer, where it has one."""
    try:
        return version(PACKAGES.get(module, module)) if module else ""
    except PackageNotFoundError:
        return ""


def main() -> int:
    """Compare, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default=",".join(PEERS), help="peers to compare with, such as transformers,jiwer")
    wanted, agrees = parser.parse_args().only.split(","), True
    print("| peer | what | difference | |\n|---|---|---|---|")
    for peer in wanted:
        module, check = PEERS[peer]
        if not is_there(peer, module):
            print(f"| {peer} | not installed | | |", flush=True)
            continue
        for found in check():
            is_right = found.difference <= found.most
            agrees = agrees and is_right
            verdict = "" if is_right else f"MORE THAN {found.most:g}"
            name = f"{peer} {version_of(module)}".strip()
            print(f"| {name} | {found.what} | {found.difference:.2g} {found.of} | {verdict} |", flush=True)
    return 0 if agrees else 1


if __name__ == "__main__":
    sys.exit(main())
