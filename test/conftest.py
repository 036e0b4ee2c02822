"""Fixtures for all tests; its being here also lets tests import the helpers of this folder."""
from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with validation data; the test is skipped where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("no validation data: the folder 'shared' beside the repository is absent")
    return SHARED
