"""Training on a Kubernetes cluster: TrainJobs of Kubeflow Trainer, watched by a launcher, cleaned up by a reaper.

Everything but `api.py` is pure: it talks to a `Cluster` (`interface.py`), which `api.py` is on Kubernetes and a
simulation is in tests.
"""
