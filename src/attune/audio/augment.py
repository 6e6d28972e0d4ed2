"""Vary training audio: speed, room, noise, loudness. A function of the samples and a generator, without state.

The generator is made from (seed, epoch, utterance), so an utterance sounds the same whichever worker, batch or rank it
falls to, and differently in every epoch.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from attune.audio.decode import Samples, audio_seconds, read_audio, resample
from attune.audio.settings import AugmentConfig, NoiseConfig
from attune.errors import ConfigError
from attune.seeds import derive
from attune.types import SAMPLE_RATE

AUDIO_FILES = {".wav", ".flac", ".ogg", ".opus", ".mp3"}


@dataclass(frozen=True, slots=True)
class Augmenter:
    """The settings, with the files that they name; small enough to be sent to every loader worker."""

    settings: AugmentConfig
    noises: tuple[Path, ...] = ()
    rooms: tuple[Path, ...] = ()
    longest_seconds: float = math.inf  # what the model hears at once

    def __call__(
        self, samples: Samples, generator: np.random.Generator, fits: Callable[[int], bool] = lambda _: True
    ) -> Samples:
        """The samples as they sound this time; a speed at which the length would not fit is left out.

        The same goes for one that would make it too long to be heard: the end of the text would have no audio.
        """
        settings = self.settings
        if settings.speeds:
            faster = change_speed(samples, float(generator.choice(settings.speeds)))
            is_heard = len(faster) <= self.longest_seconds * SAMPLE_RATE
            samples = faster if is_heard and fits(len(faster)) else samples
        if settings.rooms and generator.random() < settings.rooms.chance:
            samples = convolve_with_room(samples, read_response(_draw(self.rooms, generator)))
        if settings.noise and generator.random() < settings.noise.chance:
            samples = self._with_noise(samples, settings.noise, generator)
        if settings.gain_db:
            samples = samples * np.float32(10 ** (generator.uniform(*settings.gain_db) / 20))
        return samples

    @property
    def fingerprint(self) -> str:
        """Changes when draws would come to other recordings."""
        files = [f"{path.name} {path.stat().st_size}" for path in (*self.noises, *self.rooms)]
        return hashlib.sha256("\n".join(files).encode()).hexdigest() if files else ""

    def _with_noise(self, samples: Samples, settings: NoiseConfig, generator: np.random.Generator) -> Samples:
        noise = read_noise(_draw(self.noises, generator), len(samples), generator.random())
        return add_noise(samples, noise, generator.uniform(*settings.snr_db))


def open_augmenter(settings: AugmentConfig, longest_seconds: float | None = None) -> Augmenter:
    """List the noises and rooms once, in an order that is the same on every machine."""
    noises = _noises(settings.noise.folder) if settings.noise else ()
    rooms = _responses(settings.rooms.folder) if settings.rooms else ()
    return Augmenter(settings, noises, rooms, longest_seconds or math.inf)


def generator_for(seed: int, epoch: int, utterance_id: str) -> np.random.Generator:
    """All the randomness that one utterance gets in one epoch."""
    return np.random.Generator(np.random.Philox(derive(seed, "augment", epoch, utterance_id)))


def change_speed(samples: Samples, factor: float) -> Samples:
    """The same speech, `factor` times as fast and as high."""
    return resample(samples, round(SAMPLE_RATE * factor), SAMPLE_RATE)


def convolve_with_room(samples: Samples, response: Samples) -> Samples:
    """The speech as loud and as timed as before, with the room's echoes.

    The strongest tap is the direct path: what it delays is shifted back, so that labels in time stay right.
    """
    size = 1 << (len(samples) + len(response) - 2).bit_length()
    spectrum = np.fft.rfft(samples, size) * np.fft.rfft(response, size)
    direct = int(np.abs(response).argmax())
    heard = np.fft.irfft(spectrum, size)[direct : direct + len(samples)].astype(np.float32)
    return heard * np.float32(_ratio(_power(samples), _power(heard)))


def add_noise(samples: Samples, noise: Samples, snr_db: float) -> Samples:
    """Lay noise of the same length over the speech, `snr_db` below it; silence on either side changes nothing."""
    level = _ratio(_power(samples), _power(noise)) * 10 ** (-snr_db / 20)
    return samples + noise * np.float32(level)


def read_noise(path: Path, length: int, where: float) -> Samples:
    """So many samples of a recording from a place between its beginning (0) and end (1); a short one is repeated."""
    seconds, wanted = audio_seconds(path), length / SAMPLE_RATE
    if seconds <= wanted:
        noise = read_audio(path)
        return np.resize(np.roll(noise, -int(where * len(noise))), length)
    return np.resize(read_audio(path, where * (seconds - wanted), wanted), length)


def read_response(path: Path) -> Samples:
    """A room's impulse response; of several microphones the first, since their mean is no place in the room."""
    return read_audio(path, channel=0)


def _audio_files(key: str, folder: str) -> tuple[Path, ...]:
    found = sorted(path for path in Path(folder).rglob("*") if path.suffix.lower() in AUDIO_FILES)
    if not found:
        raise ConfigError(f"{key}: {folder} has no audio in it (looked for {', '.join(sorted(AUDIO_FILES))}).")
    return tuple(found)


def _noises(folder: str) -> tuple[Path, ...]:
    """The recordings of noise; of OpenSLR 28 as a whole, without the impulse responses beside them."""
    found = _audio_files("augment.noise.folder", folder)
    has_responses = any("simulated_rirs" in path.relative_to(folder).parts for path in found)
    return tuple(path for path in found if _is_noise(path)) if has_responses else found


def _is_noise(path: Path) -> bool:
    return "noise" in path.stem.lower() or path.parent.name == "pointsource_noises"


def _responses(folder: str) -> tuple[Path, ...]:
    """The impulse responses among the files; OpenSLR 28 keeps recordings of noise beside them."""
    key = "augment.rooms.folder"
    found = [path for path in _audio_files(key, folder) if not _is_noise(path)]
    if not found:
        raise ConfigError(f"{key}: {folder} has noises in it, but no impulse responses.")
    return tuple(found)


def _draw(files: Sequence[Path], generator: np.random.Generator) -> Path:
    return files[int(generator.integers(len(files)))]


def _power(samples: Samples) -> float:
    return float(np.square(samples, dtype=np.float64).mean())


def _ratio(wanted: float, found: float) -> float:
    """The factor between the amplitudes of two powers; nothing makes sound of silence."""
    return math.sqrt(wanted / found) if found > 0 else 0.0
