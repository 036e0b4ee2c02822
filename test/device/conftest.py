"""The simulated device compiles the kernels in CUDA C++ with a C++ compiler, which only tests need."""
import pytest
from host_text import COMPILERS, compiler


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without a compiler, tests of the device are skipped, with a reason."""
    if compiler() is None:
        skip = pytest.mark.skip(reason=f"no C++ compiler ({', '.join(COMPILERS)}): apt-get install g++")
        for item in items:
            if "device" in item.path.parts and "test_device.py" not in item.path.name:
                item.add_marker(skip)
