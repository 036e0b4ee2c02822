"""git for the tests of the history."""
import subprocess
from pathlib import Path


def git(folder: Path, *words: str, **environment: str) -> str:
    """Run git in a folder, without any user's settings."""
    path = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True, text=True,
                          env={**path, **environment}).stdout
