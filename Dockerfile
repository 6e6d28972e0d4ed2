# attune in a container, for the CPU or for CUDA:
#   docker build -t attune .                                  CPU
#   docker build -t attune:cuda --build-arg VARIANT=cuda .    CUDA (run it with --gpus all)
# docs/guides/clusters.md#containers says how to run it.
FROM debian:bookworm-slim

ARG VARIANT=cpu
# Where torch's CPU builds are, when the default package index has none.
ARG TORCH_INDEX_URL=
# More extras of attune, or more packages, to have in the image.
ARG EXTRAS=ray,track,lora,data,av,s3
ARG PACKAGES=

SHELL ["/bin/bash", "-o", "pipefail", "-c"]

# tini passes signals on and reaps, so that a preemption reaches attune as process 1's child.
# wget is what the probes of KubeRay call.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates python3 python3-venv tini wget \
 && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/attune
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY src ./src

# One build of torch is asked for by name: 2.13.0+cpu is the CPU build of 2.13.0, and the constraints hold for both.
RUN python3 -m venv /opt/venv \
 && torch="$(grep '^torch==' constraints.txt)$([ "$VARIANT" = cuda ] || echo +cpu)" \
 && /opt/venv/bin/pip install --no-cache-dir --disable-pip-version-check ${TORCH_INDEX_URL:+--extra-index-url "$TORCH_INDEX_URL"} \
      --constraint constraints.txt "$torch" ".[$EXTRAS]" $PACKAGES \
 && /opt/venv/bin/attune --version

ENV PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    ATTUNE_CACHE=/cache

# Data and runs are mounted at /work; they belong to whoever has this number outside (docker run --user to change it).
RUN useradd --uid 1000 --create-home attune && mkdir /work /cache && chown attune:attune /work /cache
USER 1000
WORKDIR /work

ENTRYPOINT ["tini", "--", "attune"]
CMD ["--help"]
