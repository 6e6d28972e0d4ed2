"""Kaldi's log power spectrum, normalized by utterance. 10 ms, one layer of 257."""

from pathlib import Path

from attune.families.ssl.upstream import Upstream, UpstreamType


def build(assets: Path) -> Upstream:
    """Nothing to train, nothing to fetch."""
    from attune.audio.features import frame_count
    from attune.audio.spectra import spectrogram
    from attune.families.ssl.filterbanks import FilterbankUpstream

    return FilterbankUpstream(spectrogram, frame_count, 257)


UPSTREAM = UpstreamType(build)
