"""Log power spectrum of centered windows, normalized by utterance. 10 ms, one layer of 201."""

from pathlib import Path

from attune.families.ssl.upstream import Upstream, UpstreamType


def build(assets: Path) -> Upstream:
    """Nothing to train, nothing to fetch."""
    from attune.audio.spectra import centered_count, linear
    from attune.families.ssl.filterbanks import FilterbankUpstream

    return FilterbankUpstream(linear, centered_count, 201)


UPSTREAM = UpstreamType(build)
