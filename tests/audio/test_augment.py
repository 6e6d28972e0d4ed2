import pickle

import numpy as np
import pytest
import soundfile

from attune.audio.augment import (
    Augmenter,
    add_noise,
    change_speed,
    convolve_with_room,
    crop,
    generator_for,
    open_augmenter,
    read_noise,
)
from attune.audio.settings import AugmentConfig, NoiseConfig, RoomsConfig
from attune.errors import ConfigError
from attune.types import SAMPLE_RATE


def tone(seconds=1.0, hertz=440.0):
    return (0.3 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * SAMPLE_RATE)) / SAMPLE_RATE)).astype(np.float32)


def hiss(length, seed=0):
    return (0.1 * np.random.default_rng(seed).standard_normal(length)).astype(np.float32)


def write(path, samples, rate=SAMPLE_RATE):
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples, rate)
    return path


@pytest.fixture
def settings(tmp_path):
    """Noises and rooms laid out as in OpenSLR 28."""
    root = tmp_path / "RIRS_NOISES"
    for number in range(3):
        write(root / f"pointsource_noises/noise-free-sound-000{number}.wav", hiss(4000 + 30000 * number, number))
        response = hiss(3000, 10 + number) * np.exp(-np.arange(3000) / 400)
        response[100 * number] = 1.0
        write(root / f"simulated_rirs/smallroom/Room00{number}/Room00{number}-00001.wav", response)
    write(root / "real_rirs_isotropic_noises/RVB2014_type1_rir_largeroom1_far_angla.wav", hiss(500)[:, None] * [1, -1])
    write(root / "real_rirs_isotropic_noises/RVB2014_type1_noise_largeroom1_1.wav", hiss(500))
    return AugmentConfig(
        speeds=(0.9, 1.0, 1.1),
        noise=NoiseConfig(folder=str(root / "pointsource_noises"), chance=0.8, snr_db=(0.0, 20.0)),
        rooms=RoomsConfig(folder=str(root), chance=0.5),
        gain_db=(-6.0, 6.0),
    )


def decibels(signal, other):
    return 10 * np.log10(np.mean(np.square(signal)) / np.mean(np.square(other)))


def test_an_utterance_sounds_the_same_in_any_worker_and_another_way_in_each_epoch(settings):
    here, there = open_augmenter(settings), pickle.loads(pickle.dumps(open_augmenter(settings)))
    versions = [here(tone(), generator_for(17, epoch, "a")) for epoch in range(6)]
    there(tone(), generator_for(17, 0, "b"))
    again = [there(tone(), generator_for(17, epoch, "a")) for epoch in range(6)]
    assert all(np.array_equal(one, two) for one, two in zip(versions, again, strict=True))
    assert len({version.tobytes() for version in versions}) == 6
    assert {version.dtype for version in versions} == {np.dtype(np.float32)}


def test_seed_epoch_and_utterance_each_matter():
    drawn = {generator_for(*key).random() for key in [(1, 0, "a"), (2, 0, "a"), (1, 1, "a"), (1, 0, "b")]}
    assert len(drawn) == 4


def test_every_speed_is_drawn_and_one_that_does_not_fit_is_left_out():
    augment = Augmenter(AugmentConfig(speeds=(0.9, 1.0, 1.1)))
    lengths = {len(augment(tone(), generator_for(0, epoch, "a"))) for epoch in range(30)}
    assert sorted(lengths) == pytest.approx([SAMPLE_RATE / speed for speed in (1.1, 1.0, 0.9)], abs=1)
    short = [augment(tone(), generator_for(0, epoch, "a"), lambda length: length <= SAMPLE_RATE) for epoch in range(30)]
    assert max(map(len, short)) == SAMPLE_RATE


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_faster_speech_is_shorter_and_higher(factor):
    changed = change_speed(tone(2.0), factor)
    strongest = np.abs(np.fft.rfft(changed)).argmax() * SAMPLE_RATE / len(changed)
    assert len(changed) == pytest.approx(2 * SAMPLE_RATE / factor, abs=1)
    assert strongest == pytest.approx(440 * factor, abs=1)


@pytest.mark.parametrize("snr", [-5.0, 0.0, 20.0])
def test_noise_lies_as_far_below_the_speech_as_asked(snr):
    noise = add_noise(tone(), hiss(SAMPLE_RATE), snr) - tone()
    assert decibels(tone(), noise) == pytest.approx(snr, abs=0.01)


def test_silence_stays_silence_and_silent_noise_changes_nothing():
    silence = np.zeros(1000, np.float32)
    assert not add_noise(silence, hiss(1000), 10.0).any()
    assert not convolve_with_room(silence, hiss(50)).any()
    assert np.array_equal(add_noise(tone(), np.zeros_like(tone()), 10.0), tone())


def test_noise_is_read_from_anywhere_and_repeated_when_it_is_short(tmp_path):
    ramp = np.linspace(-0.9, 0.9, 8000).astype(np.float32)
    path = write(tmp_path / "ramp.wav", ramp)
    assert read_noise(path, 800, 0.0) == pytest.approx(ramp[:800], abs=1e-4)
    assert read_noise(path, 800, 1.0) == pytest.approx(ramp[-800:], abs=1e-4)
    repeated = read_noise(path, 20000, 0.5)
    assert repeated == pytest.approx(np.resize(np.roll(ramp, -4000), 20000), abs=1e-4)


def test_a_room_keeps_the_loudness_and_the_time_of_the_direct_path():
    click = np.zeros(8000, np.float32)
    click[2000] = 1.0
    response = np.zeros(1000, np.float32)
    response[[300, 500]] = [1.0, -0.5]  # the direct path, then an echo 200 samples later
    heard = convolve_with_room(click, response)
    assert len(heard) == 8000
    assert np.flatnonzero(np.abs(heard) > 0.01).tolist() == [2000, 2200]
    assert heard[2200] / heard[2000] == pytest.approx(-0.5, abs=1e-4)
    assert decibels(heard, click) == pytest.approx(0, abs=0.01)


def test_a_room_of_one_direct_path_changes_nothing():
    assert convolve_with_room(tone(), np.array([0, 0, 0.7], np.float32)) == pytest.approx(tone(), abs=1e-5)


def test_the_gain_is_within_its_range():
    augment = Augmenter(AugmentConfig(gain_db=(-6.0, 3.0)))
    gains = [decibels(augment(tone(), generator_for(0, epoch, "a")), tone()) for epoch in range(50)]
    assert -6 <= min(gains) < -4 and 1 < max(gains) <= 3.01


def test_rooms_are_the_impulse_responses_alone_and_files_come_in_order(settings):
    opened = open_augmenter(settings)
    assert [path.stem for path in opened.rooms] == [
        "RVB2014_type1_rir_largeroom1_far_angla",
        *(f"Room00{number}-00001" for number in range(3)),
    ]
    assert [path.stem[-1] for path in opened.noises] == ["0", "1", "2"]


def test_of_several_microphones_the_first_is_heard(settings):
    (real, *_) = open_augmenter(settings).rooms  # two channels whose mean is silence
    augment = Augmenter(AugmentConfig(rooms=RoomsConfig(folder="", chance=1.0)), rooms=(real,))
    assert np.abs(augment(tone(), generator_for(0, 0, "a"))).max() > 0.1


def test_a_folder_without_audio_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"augment.noise.folder: .*nothing has no audio files"):
        open_augmenter(AugmentConfig(noise=NoiseConfig(folder=str(tmp_path / "nothing"))))
    write(tmp_path / "pointsource_noises/a.wav", hiss(100))
    with pytest.raises(ConfigError, match=r"augment.rooms.folder: .* no impulse responses"):
        open_augmenter(AugmentConfig(rooms=RoomsConfig(folder=str(tmp_path))))


def test_impulse_responses_are_no_noises(settings):
    whole = NoiseConfig(folder=settings.rooms.folder)
    names = [path.stem for path in open_augmenter(AugmentConfig(noise=whole)).noises]
    assert len(names) == 4 and all("noise" in name for name in names)


def test_a_range_goes_from_low_to_high():
    with pytest.raises(ValueError, match="snr_db must go from low to high, found 20 to 5"):
        NoiseConfig(folder="noises", snr_db=(20.0, 5.0))
    with pytest.raises(ValueError, match="gain_db"):
        AugmentConfig(gain_db=(1.0, -1.0))


def test_a_speed_that_makes_it_longer_than_the_model_hears_is_left_out():
    speech = np.ones(16_000, np.float32)
    slow, fast = (Augmenter(AugmentConfig(speeds=(speed,)), longest_seconds=1.0) for speed in (0.9, 1.1))
    assert len(slow(speech, np.random.default_rng(0))) == 16_000
    assert len(slow(speech[:14_400], np.random.default_rng(0))) == 16_000
    # What was too long before is no matter of speeds.
    assert len(fast(np.ones(17_600, np.float32), np.random.default_rng(0))) == 16_000
    assert len(slow(np.ones(17_600, np.float32), np.random.default_rng(0))) == 17_600


def test_a_crop_is_a_part_of_the_utterance_and_a_short_one_stays_whole():
    samples = np.arange(100, dtype=np.float32)
    for where in (0.0, 0.5, 0.999):
        found = crop(samples, 30, where)
        assert len(found) == 30 and (np.diff(found) == 1).all()
    assert crop(samples, 30, 0.999)[-1] == 99
    assert len(crop(samples, 200, 0.5)) == 100
