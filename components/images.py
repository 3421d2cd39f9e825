"""The image that tasks run in, read when the pipeline is compiled.

One image, for there is one set of dependencies. It holds the package and its
pinned requirements; nothing is installed when a task starts.
"""

import os

IMAGE = os.environ.get("GEARTRAIN_IMAGE", "geartrain/python:dev")
"""Reference with a tag or digest; on a cluster a digest, which `python -m pipelines.compile --release` insists on."""
