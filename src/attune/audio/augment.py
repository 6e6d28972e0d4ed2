"""Audio augmentation: crops, speed, reverberation, noise, gain. A stateless function of samples and a generator.

The generator is seeded by (seed, epoch, utterance), so an utterance is augmented identically in any worker, batch or
rank, and differently in every epoch.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from attune.audio.containers import ALL_SUFFIXES
from attune.audio.decode import Samples, audio_seconds, read_audio, resample
from attune.audio.settings import AugmentConfig, NoiseConfig
from attune.errors import ConfigError
from attune.seeds import derive
from attune.types import SAMPLE_RATE


@dataclass(frozen=True, slots=True)
class Augmenter:
    """The settings and the audio files they name; small enough to be pickled to every loader worker."""

    settings: AugmentConfig
    noises: tuple[Path, ...] = ()
    rooms: tuple[Path, ...] = ()
    longest_seconds: float = math.inf  # the model's input limit

    def __call__(
        self, samples: Samples, generator: np.random.Generator, fits: Callable[[int], bool] = lambda _: True
    ) -> Samples:
        """Augment the samples; a speed is skipped if the new length does not satisfy `fits`.

        It is also skipped if it makes the utterance longer than the model's input limit: the end of the transcript
        would have no audio.
        """
        settings = self.settings
        if settings.crop_seconds:
            samples = crop(samples, round(settings.crop_seconds * SAMPLE_RATE), generator.random())
        if settings.speeds:
            perturbed = change_speed(samples, float(generator.choice(settings.speeds)))
            is_short_enough = len(perturbed) <= self.longest_seconds * SAMPLE_RATE
            samples = perturbed if is_short_enough and fits(len(perturbed)) else samples
        if settings.rooms and generator.random() < settings.rooms.chance:
            samples = convolve_with_room(samples, read_impulse_response(_choose(self.rooms, generator)))
        if settings.noise and generator.random() < settings.noise.chance:
            samples = self._with_noise(samples, settings.noise, generator)
        if settings.gain_db:
            samples = samples * np.float32(10 ** (generator.uniform(*settings.gain_db) / 20))
        return samples

    @property
    def fingerprint(self) -> str:
        """Changes when the noise or impulse response files change."""
        files = [f"{path.name} {path.stat().st_size}" for path in (*self.noises, *self.rooms)]
        return hashlib.sha256("\n".join(files).encode()).hexdigest() if files else ""

    def _with_noise(self, samples: Samples, settings: NoiseConfig, generator: np.random.Generator) -> Samples:
        noise = read_noise(_choose(self.noises, generator), len(samples), generator.random())
        return add_noise(samples, noise, generator.uniform(*settings.snr_db))


def open_augmenter(settings: AugmentConfig, longest_seconds: float | None = None) -> Augmenter:
    """List the noise and impulse response files, sorted so that every machine has the same order."""
    noises = _noises(settings.noise.folder) if settings.noise else ()
    rooms = _responses(settings.rooms.folder) if settings.rooms else ()
    return Augmenter(settings, noises, rooms, longest_seconds or math.inf)


def generator_for(seed: int, epoch: int, utterance_id: str) -> np.random.Generator:
    """The random generator of one utterance in one epoch."""
    return np.random.Generator(np.random.Philox(derive(seed, "augment", epoch, utterance_id)))


def crop(samples: Samples, size: int, where: float) -> Samples:
    """`size` samples from a position between 0 (start) and 1 (end); a shorter utterance as it is."""
    start = int(where * (len(samples) - size + 1)) if len(samples) > size else 0
    return samples[start : start + size]


def change_speed(samples: Samples, factor: float) -> Samples:
    """Speed perturbation by resampling: tempo and pitch change by `factor`."""
    return resample(samples, round(SAMPLE_RATE * factor), SAMPLE_RATE)


def convolve_with_room(samples: Samples, response: Samples) -> Samples:
    """Reverberate: convolve with a room impulse response, keeping length, power and alignment.

    The strongest tap is the direct path: its delay is removed, so that timestamps stay valid.
    """
    size = 1 << (len(samples) + len(response) - 2).bit_length()
    spectrum = np.fft.rfft(samples, size) * np.fft.rfft(response, size)
    direct = int(np.abs(response).argmax())
    reverberant = np.fft.irfft(spectrum, size)[direct : direct + len(samples)].astype(np.float32)
    return reverberant * np.float32(_ratio(_power(samples), _power(reverberant)))


def add_noise(samples: Samples, noise: Samples, snr_db: float) -> Samples:
    """Mix noise of the same length into the speech at `snr_db`; if either is silent, return the speech."""
    level = _ratio(_power(samples), _power(noise)) * 10 ** (-snr_db / 20)
    return samples + noise * np.float32(level)


def read_noise(path: Path, length: int, where: float) -> Samples:
    """`length` samples of a noise recording from a position between 0 (start) and 1 (end); a short one is looped."""
    seconds, wanted = audio_seconds(path), length / SAMPLE_RATE
    if seconds <= wanted:
        noise = read_audio(path)
        return np.resize(np.roll(noise, -int(where * len(noise))), length)
    return np.resize(read_audio(path, where * (seconds - wanted), wanted), length)


def read_impulse_response(path: Path) -> Samples:
    """A room impulse response; channel 0 if there are several microphones, as their mean is not a real position."""
    return read_audio(path, channel=0)


def _audio_files(key: str, folder: str) -> tuple[Path, ...]:
    found = sorted(path for path in Path(folder).rglob("*") if path.suffix.lower() in ALL_SUFFIXES)
    if not found:
        raise ConfigError(f"{key}: {folder} has no audio files ({', '.join(ALL_SUFFIXES)}). Choose another folder.")
    return tuple(found)


def _noises(folder: str) -> tuple[Path, ...]:
    """The noise recordings; in OpenSLR 28, without its impulse responses."""
    found = _audio_files("augment.noise.folder", folder)
    has_responses = any("simulated_rirs" in path.relative_to(folder).parts for path in found)
    return tuple(path for path in found if _is_noise(path)) if has_responses else found


def _is_noise(path: Path) -> bool:
    return "noise" in path.stem.lower() or path.parent.name == "pointsource_noises"


def _responses(folder: str) -> tuple[Path, ...]:
    """The impulse responses; in OpenSLR 28, without its noise recordings."""
    key = "augment.rooms.folder"
    found = [path for path in _audio_files(key, folder) if not _is_noise(path)]
    if not found:
        raise ConfigError(f"{key}: {folder} has noise recordings but no impulse responses. Choose another folder.")
    return tuple(found)


def _choose(files: Sequence[Path], generator: np.random.Generator) -> Path:
    return files[int(generator.integers(len(files)))]


def _power(samples: Samples) -> float:
    return float(np.square(samples, dtype=np.float64).mean())


def _ratio(wanted: float, found: float) -> float:
    """The amplitude factor between two powers; 0 for silence."""
    return math.sqrt(wanted / found) if found > 0 else 0.0
