"""Upstreams that are not of the wav2vec 2.0 kind: spectra, Whisper's encoder, NeMo's, S3PRL's own."""

import numpy as np
import pytest
import torch

from attune import catalog
from attune.errors import ModelError
from attune.families.ssl.upstream import UPSTREAMS

from tiny_whisper import write_whisper
from upstream_checks import farthest, layers_of, open_upstream, recordings

SPECTRA = {"fbank": 240, "mfcc": 39, "mel": 80, "linear": 201, "spectrogram": 257}


@pytest.fixture(scope="module")
def audio(tmp_path_factory):
    return recordings(tmp_path_factory.mktemp("corpus"))


def require_independent(upstream, audio, tolerance=1e-5):
    """Each row has the same layers alone and in batches of unlike lengths."""
    alone = [layers_of(upstream, [row])[0] for row in audio]
    for rows in (range(len(audio)), [3, 0], [0, 1] * 4):
        for row, layers in zip(rows, layers_of(upstream, [audio[row] for row in rows]), strict=True):
            assert farthest(alone[row], layers) <= tolerance
    return alone


@pytest.mark.parametrize("name", SPECTRA)
def test_spectra_do_not_depend_on_the_batch(name, audio, tmp_path):
    upstream = catalog.find(UPSTREAMS, name).build(tmp_path)
    assert (upstream.stride, upstream.widths) == (160, (SPECTRA[name],))
    for layers in require_independent(upstream, audio, tolerance=1e-9):
        assert layers[0].mean(0).abs().max() < 1e-9  # normalized by utterance
        assert layers[0].isfinite().all()
    assert len(layers_of(upstream, [torch.ones(1)])[0][0]) == 1


def test_mel_and_linear_are_the_power_of_mirrored_windows(audio, tmp_path):
    row = audio[1].double()
    powers = (
        torch.stft(row, 400, 160, window=torch.hann_window(400, dtype=torch.float64), return_complex=True).abs() ** 2
    )
    for name, expected in (("linear", powers.T), ("mel", powers.T @ mel_bank())):
        logs = (expected + 1e-10).log()
        normed = (logs - logs.mean(0)) / logs.std(0, unbiased=False)
        found = layers_of(catalog.find(UPSTREAMS, name).build(tmp_path), [audio[1]])[0][0]
        assert (found - normed).abs().max() < 1e-6


def mel_bank():
    from transformers.audio_utils import mel_filter_bank

    return torch.from_numpy(mel_filter_bank(201, 80, 0.0, 8000.0, 16_000, norm=None, mel_scale="htk"))


def kaldi_powers(samples, **settings):
    from transformers.audio_utils import spectrogram, window_function

    window = window_function(400, "povey", periodic=False)
    return spectrogram(
        samples, window, 400, 160, 512, 2.0, center=False, preemphasis=0.97, remove_dc_offset=True, **settings
    ).T


def test_cepstra_and_spectrogram_are_kaldis(audio, tmp_path):
    from transformers.audio_utils import mel_filter_bank

    samples = audio[1].double().numpy()
    floor = 1.192092955078125e-07
    bank = mel_filter_bank(257, 23, 20, 8000, 16_000, norm=None, mel_scale="kaldi", triangularize_in_mel_space=True)
    energies = np.log(np.maximum(kaldi_powers(samples) @ bank, floor))
    # The cosine transform of a sequence is the Fourier transform of the sequence and its mirror image.
    mirrored = np.concatenate([energies, energies[:, ::-1]], axis=1)
    orders = np.arange(13)
    cosines = (np.fft.fft(mirrored, axis=1)[:, :13] * np.exp(-1j * np.pi * orders / 46)).real / 2 * np.sqrt(2 / 23)
    cosines[:, 0] /= np.sqrt(2)
    cepstra = cosines * (1 + 11 * np.sin(np.pi * orders / 22))
    windows = np.lib.stride_tricks.sliding_window_view(samples, 400)[::160]
    frame_energy = ((windows - windows.mean(1, keepdims=True)) ** 2).sum(1, keepdims=True)
    powers = np.concatenate([frame_energy, kaldi_powers(samples)[:, 1:]], axis=1)
    for name, expected in (("mfcc", cepstra), ("spectrogram", np.log(np.maximum(powers, floor)))):
        found = layers_of(catalog.find(UPSTREAMS, name).build(tmp_path), [audio[1]])[0][0].numpy()
        normed = (expected - expected.mean(0)) / expected.std(0)
        assert np.abs(found[:, : expected.shape[1]] - normed).max() < 1e-4


def test_whispers_encoder_is_transformers_own(audio, tmp_path):
    import transformers

    folder = write_whisper(tmp_path / "whisper")
    upstream = open_upstream("whisper", folder, tmp_path)
    model = transformers.WhisperModel.from_pretrained(folder).float().eval()
    extractor = transformers.WhisperFeatureExtractor(feature_size=80)
    assert (upstream.stride, upstream.max_seconds) == (320, 30.0)
    for row, layers in zip(audio, require_independent(upstream, audio), strict=True):
        mels = extractor(row.numpy(), sampling_rate=16_000, return_tensors="pt").input_features
        with torch.inference_mode():
            found = model.encoder(mels, output_hidden_states=True)
        assert farthest(layers, [*(each[0] for each in found.hidden_states[:-1]), found.last_hidden_state[0]]) < 1e-5


def test_a_whisper_with_few_positions_takes_no_more_than_they_hold(tmp_path):
    upstream = open_upstream("whisper", write_whisper(tmp_path / "whisper", max_source_positions=350), tmp_path)
    assert upstream.max_seconds == 7.0  # longer recordings are cut, not truncated


def test_a_nemo_encoder_ends_in_the_frames_of_the_transducer(audio, tmp_path):
    from attune.families._conformer import Conformer
    from attune.families.transducer.archive import read_archive
    from attune.families.transducer.front_end import FrontEnd
    from attune.families.transducer.shape import read_shape

    from transducers import golden_folder

    path = golden_folder("fastconformer") / "model.nemo"
    upstream = open_upstream("nemo", path, tmp_path)
    archive = read_archive(path)
    shape = read_shape(archive.config)
    front_end, encoder = FrontEnd(shape.front_end).eval(), Conformer(shape.encoder, is_frozen=True).eval()
    encoder.load_state_dict(
        {k.removeprefix("encoder."): v for k, v in archive.tensors.items() if k.startswith("encoder.")}
    )
    assert upstream.stride == 160 * encoder.stride
    for row, layers in zip(audio, require_independent(upstream, audio), strict=True):
        with torch.inference_mode():
            frames, counts = encoder(*front_end(row[None], torch.tensor([len(row)])))
        assert farthest([layers[-1]], [frames[0, : int(counts)]]) < 1e-5


def test_the_encoder_of_another_nemo_file_is_refused(tmp_path):
    from transducers import golden_folder

    with pytest.raises(ModelError, match="no Conformer"):
        catalog.find(UPSTREAMS, "nemo").read(golden_folder("contextnet") / "model.nemo", tmp_path)
