"""A real MLflow server on 127.0.0.1: mlflow-skinny holds it, and the extra `dev` the few packages that it lacks."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager


@contextmanager
def mlflow_server(folder):
    """Serve from a folder (SQLite, artifacts on disk); yield the address."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += [
        "--backend-store-uri",
        f"sqlite:///{folder}/mlflow.db",
        "--artifacts-destination",
        f"{folder}/artifacts",
    ]
    environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "PYTHONWARNINGS": "ignore"}
    environment["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"  # a second process, for what we do not use
    server = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said = []
        for line in server.stdout:
            said.append(line)
            if "Uvicorn running on" in line:
                break
        else:
            raise AssertionError("".join(said))
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.communicate(timeout=60)
