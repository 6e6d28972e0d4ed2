"""TERA (arXiv 2007.06028), from S3PRL's checkpoints. 10 ms, 4 layers of 768."""

from attune.families.ssl.s3prl_encoders import build, read
from attune.families.ssl.upstream import UpstreamType

UPSTREAM = UpstreamType(build, read)
