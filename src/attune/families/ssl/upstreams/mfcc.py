"""Kaldi's 13 cepstra with deltas, normalized by utterance. 10 ms, one layer of 39."""

from pathlib import Path

from attune.families.ssl.upstream import Upstream, UpstreamType


def build(assets: Path) -> Upstream:
    """Nothing to train, nothing to fetch."""
    from attune.audio.features import frame_count
    from attune.audio.spectra import mfcc
    from attune.families.ssl.filterbanks import FilterbankUpstream

    return FilterbankUpstream(mfcc, frame_count, 39)


UPSTREAM = UpstreamType(build)
