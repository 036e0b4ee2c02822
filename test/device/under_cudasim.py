"""The small check of bench/gpu_frame.py as JSON; run by test_cuda_simulator.py in a process that has the simulator."""
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "tools"))

from gpu_checks import small_check

print(json.dumps(small_check()))
