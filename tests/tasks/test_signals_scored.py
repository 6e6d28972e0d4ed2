"""Tasks that write audio score it as the packages of PESQ and WORLD do."""

import importlib.util

import numpy as np
import pytest
import soundfile

from attune.scoring.cepstra import mel_cepstral_distortion
from attune.tasks.convert_voice import ConvertVoice, ConvertVoiceConfig
from attune.tasks.convert_voice.world import world_envelope
from attune.tasks.enhance import Enhance, EnhanceConfig
from attune.testing.data import speak
from attune.types import SAMPLE_RATE, Prediction, ScoringContext

import small_corpora as corpora

pytestmark = pytest.mark.recipe


def scored(task, path, signals, folder):
    """The scores of signals as predictions for the utterances of a manifest."""
    utterances = {each.id: each for each in corpora.utterances_of(path)}
    for name, signal in zip(utterances, signals, strict=True):
        soundfile.write(folder / f"{name}.wav", signal, SAMPLE_RATE, subtype="FLOAT")
    predictions = [Prediction(name, None, None, file=f"{name}.wav") for name in utterances]
    context = ScoringContext("test", folder, {}, utterances.__getitem__)
    return {name: each.value for name, each in task.score(predictions, context).values.items()}


def test_pesq_is_that_of_the_package_and_silence_has_the_lowest(tmp_path):
    pesq = pytest.importorskip("pesq").pesq
    path = corpora.noisy(tmp_path / "data", "a", 3, 1)
    cleans = [soundfile.read(tmp_path / "data" / f"a-{number}-clean.wav")[0] for number in range(3)]
    random = np.random.default_rng(0)
    found = [each + random.normal(0, 0.02 * (number + 1), len(each)) for number, each in enumerate(cleans)]
    task = Enhance(EnhanceConfig(pesq=True), tmp_path)
    expected = np.mean([pesq(SAMPLE_RATE, *pair, "wb") for pair in zip(cleans, found, strict=True)])
    assert scored(task, path, found, tmp_path)["pesq"] == pytest.approx(expected, abs=1e-3)
    assert scored(task, path, [np.zeros_like(each) for each in cleans], tmp_path)["pesq"] == 1.0


def test_distortion_by_world_is_zero_for_the_target_itself_and_grows_with_what_is_changed(tmp_path):
    if importlib.util.find_spec("pyworld") is None:
        pytest.skip("needs pyworld")
    path = corpora.parallel(tmp_path / "data", "test", 2, 1)
    targets = [soundfile.read(tmp_path / "data" / f"test-{number}-target.wav")[0] for number in range(2)]
    task = ConvertVoice(ConvertVoiceConfig(envelope="world"), tmp_path)
    assert scored(task, path, targets, tmp_path)["mcd"] == pytest.approx(0, abs=1e-6)
    bent = [np.convolve(each, (1, -0.5))[: len(each)] for each in targets]
    thin = [np.convolve(each, (1, -0.95))[: len(each)] for each in targets]
    assert 0.5 < scored(task, path, bent, tmp_path)["mcd"] < scored(task, path, thin, tmp_path)["mcd"]
    assert world_envelope(speak("one").astype(np.float64)).shape[1] == 513


@pytest.mark.parametrize("seed", range(5))
def test_distortion_is_that_of_the_cheapest_of_all_alignments(seed):
    random = np.random.default_rng(seed)
    one, other = random.normal(size=(4, 6)), random.normal(size=(5, 6))
    costs = np.linalg.norm(one[:, None] - other[None], axis=2)

    def paths(row, column):
        if row == column == 0:
            yield [(0, 0)]
        for before in ((row - 1, column - 1), (row - 1, column), (row, column - 1)):
            if min(before) >= 0:
                yield from ([*path, (row, column)] for path in paths(*before))

    best = min(paths(3, 4), key=lambda path: sum(costs[cell] for cell in path))
    expected = 10 / np.log(10) * np.sqrt(2) * np.mean([costs[cell] for cell in best])
    assert mel_cepstral_distortion(one, other) == pytest.approx(expected)
