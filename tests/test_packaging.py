"""What a user gets: few packages, exact versions in the repository's environment, and the demo's files in the wheel."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.machinery import SourceFileLoader
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest
import soundfile
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DEMO = ROOT / "src" / "attune" / "demo"
SPLITS = ("train", "dev", "test")
NEVER = {"torchaudio", "torchcodec", "librosa"}
# torch brings these where it is built for CUDA; they are the machine's, not ours.
CUDA = re.compile(r"nvidia-|cuda-|triton")


def needed_by(name: str, *extras: str) -> set[str]:
    """Every package that installing `name` installs, as far as it is installed here."""
    needed: set[str] = set()
    waiting = [(name, extras)]
    seen = set()
    while waiting:
        package, wanted = waiting.pop()
        if (package, wanted) in seen:
            continue
        seen.add((package, wanted))
        needed.add(package)
        for requirement in requirements_of(package):
            if requirement.marker is None or any(requirement.marker.evaluate({"extra": e}) for e in ("", *wanted)):
                waiting.append((canonicalize_name(requirement.name), tuple(sorted(requirement.extras))))
    return {package for package in needed if not CUDA.match(package)} - {name}


def requirements_of(package: str) -> list[Requirement]:
    if package == PROJECT["name"]:
        extras = PROJECT["optional-dependencies"].items()
        of_extras = [f"{line}; extra == '{extra}'" for extra, lines in extras for line in lines]
        return [Requirement(line) for line in (*PROJECT["dependencies"], *of_extras)]
    try:
        return [Requirement(line) for line in requires(package) or ()]
    except PackageNotFoundError:
        return []


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


def rows(split: str) -> list[dict]:
    return [json.loads(line) for line in (DEMO / f"{split}.jsonl").read_text().splitlines()]


def test_a_core_install_is_at_most_fifty_packages():
    core = needed_by("attune-speech")
    assert 20 < len(core) <= 50
    assert core & NEVER == set()


def test_every_package_of_the_environment_is_pinned():
    assert pins()["torch"] == "2.13.0"
    assert needed_by("attune-speech", "dev") - pins().keys() == set()


def test_the_pins_are_what_the_project_asks_for():
    for line in (*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]):
        requirement = Requirement(line)
        if requirement.name != PROJECT["name"]:
            assert requirement.specifier.contains(pins()[canonicalize_name(requirement.name)])


def test_the_demo_corpus_is_small_and_whole():
    audio = {path.relative_to(DEMO).as_posix(): path.stat().st_size for path in DEMO.glob("audio/*.opus")}
    listed = [row["audio"] for split in SPLITS for row in rows(split)]
    assert sorted(listed) == sorted(audio)
    assert sum(audio.values()) <= 3_000_000


def test_nobody_and_no_phrase_is_in_two_splits_of_the_demo():
    for key in ("id", "speaker", "text"):
        train, dev, test = ({row[key] for row in rows(split)} for split in SPLITS)
        assert train & dev == train & test == dev & test == set()


def test_the_demo_is_lower_case_words_that_training_has_often():
    words = [word for row in rows("train") for word in row["text"].split()]
    for row in (*rows("dev"), *rows("test")):
        assert re.fullmatch("[a-z]+( [a-z]+)*", row["text"])
        assert all(words.count(word) >= 5 for word in row["text"].split())


def test_the_pretraining_has_neither_the_demos_words_nor_its_voices():
    make_demo = load_script("make-demo")
    words = {word for split in SPLITS for row in rows(split) for word in row["text"].split()}
    assert words & set(make_demo.PRETRAIN_WORDS) == set()
    assert set(make_demo.DEMO_ACCENTS) & set(make_demo.PRETRAIN_ACCENTS) == set()
    variants = {variant for split in SPLITS for variant in make_demo.DEMO_VARIANTS[split]}
    assert variants & set(make_demo.PRETRAIN_VARIANTS) == set()


@pytest.mark.skipif(not shutil.which("espeak-ng"), reason="espeak-ng is not installed")
def test_the_demos_speech_can_be_made_again_to_the_byte(tmp_path):
    make_demo = load_script("make-demo")
    [row] = [row for row in rows("test") if row["id"] == "test-000"]
    [line] = [line for split, line in make_demo.demo_lines() if line.id == row["id"]]
    assert (line.text, line.speaker.name) == (row["text"], row["speaker"])
    for name in ("once.opus", "again.opus"):
        make_demo.make_audio(line, tmp_path / name, make_demo.DEMO_OPUS_LEVEL)
    assert (tmp_path / "once.opus").read_bytes() == (tmp_path / "again.opus").read_bytes()
    # Another version of espeak-ng may speak a little otherwise than the one that made what ships.
    assert soundfile.info(tmp_path / "once.opus").duration == pytest.approx(row["seconds"], rel=0.1)


def load_script(name: str) -> ModuleType:
    loader = SourceFileLoader(name.replace("-", "_"), str(ROOT / "scripts" / name))
    module = module_from_spec(spec_from_loader(loader.name, loader))
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module


@pytest.mark.recipe
def test_the_wheel_carries_the_package_its_demo_and_its_license(tmp_path):
    source = tmp_path / "source"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(tmp_path)]
    subprocess.run([*command, str(source)], check=True, timeout=120)
    [wheel] = tmp_path.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    shipped = {
        path.relative_to(source / "src").as_posix() for path in (source / "src/attune").rglob("*") if path.is_file()
    }
    assert shipped - packed == set()
    assert any(name.endswith("licenses/LICENSE") for name in packed)
