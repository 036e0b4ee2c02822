"""GPU state through nvidia-ml-py: the driver's answers, in words; None without an answer."""
from types import SimpleNamespace

import pynvml
import pytest

from gpu_stress.nvml import REASONS, GpuProbe, open_probe, reasons, throttled


class Driver(SimpleNamespace):
    """Functions of pynvml for two devices; those named in `mute` are not supported."""

    NVMLError = pynvml.NVMLError
    NVML_CLOCK_SM, NVML_CLOCK_MEM = pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM
    NVML_TEMPERATURE_GPU = pynvml.NVML_TEMPERATURE_GPU
    NVML_MEMORY_ERROR_TYPE_CORRECTED = pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    NVML_VOLATILE_ECC, nvmlEventTypeXidCriticalError = pynvml.NVML_VOLATILE_ECC, pynvml.nvmlEventTypeXidCriticalError

    def __init__(self, mute=(), gone=()):
        super().__init__()
        answers = {
            "nvmlDeviceGetCount": lambda: 2, "nvmlDeviceGetHandleByIndex": lambda i: f"handle {i}",
            "nvmlDeviceGetUtilizationRates": lambda h: SimpleNamespace(gpu=97, memory=40),
            "nvmlDeviceGetMemoryInfo": lambda h: SimpleNamespace(used=3 * 2**30, total=8 * 2**30),
            "nvmlDeviceGetCurrentClocksEventReasons": lambda h: 0x24,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda h: 0x40,
            "nvmlDeviceGetClockInfo": lambda h, kind: {pynvml.NVML_CLOCK_SM: 1410, pynvml.NVML_CLOCK_MEM: 1215}[kind],
            "nvmlDeviceGetPowerUsage": lambda h: 231_500, "nvmlDeviceGetEnforcedPowerLimit": lambda h: 400_000,
            "nvmlDeviceGetTemperatureV": lambda h, kind: 61, "nvmlDeviceGetTemperature": lambda h, kind: 60,
            "nvmlDeviceGetTotalEccErrors":
                lambda h, kind, since: 7 if kind == self.NVML_MEMORY_ERROR_TYPE_CORRECTED else 0,
            "nvmlEventSetCreate": list, "nvmlEventSetWait_v2": self._next_event,
            "nvmlDeviceRegisterEvents": lambda h, kinds, events: events.append(SimpleNamespace(eventData=79)),
            "nvmlSystemGetDriverVersion": lambda: "580.1", "nvmlDeviceGetName": lambda h: f"GPU of {h}"}
        for name, answer in answers.items():
            assert hasattr(pynvml, name), f"nvidia-ml-py has no {name}"
            if name not in gone:
                setattr(self, name, self._silent if name in mute else answer)

    def _next_event(self, events, timeout):
        assert timeout == 0
        if not events:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
        return events.pop(0)

    def _silent(self, *_):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


def test_a_sample_of_two_devices():
    probe = GpuProbe(Driver())
    first, second = probe.sample()
    assert first == {
        "index": 0, "load": 97, "memory_load": 40, "memory_used": 3 * 2**30, "memory_total": 8 * 2**30,
        "clock_sm": 1410, "clock_memory": 1215, "power": 231.5, "temperature": 61,
        "throttle": ["power cap", "software thermal"], "ecc_corrected": 7, "ecc_uncorrected": 0, "xids": [79]}
    assert probe.sample()[0]["xids"] == []                     # each is reported once
    assert second["index"] == 1
    assert probe.facts()[1] == {"index": 1, "name": "GPU of handle 1", "driver": "580.1", "memory": 8 * 2**30,
                                "power_limit": 400.0}


def test_older_drivers_use_older_names():
    new = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetTemperatureV")
    for driver in (Driver(gone=new), Driver(mute=new)):
        sample = GpuProbe(driver).sample()[0]
        assert sample["throttle"] == ["hardware thermal"] and sample["temperature"] == 60


def test_what_a_device_does_not_tell_is_none():
    every = [n for n in vars(Driver()) if n not in ("nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex")]
    probe = GpuProbe(Driver(mute=every))
    assert {k: v for k, v in probe.sample()[0].items() if v is not None} == {"index": 0}
    assert probe.facts()[0]["power_limit"] is None


def test_reasons_in_words():
    for name in (n for n in dir(pynvml) if n.startswith("nvmlClocksEventReason")):
        bit = getattr(pynvml, name)
        if bit and not name.endswith("All"):
            assert bit in REASONS, f"{name} has no word"
    assert reasons(0) == [] and reasons(0x9) == ["idle", "hardware slowdown"]
    assert reasons(0x10001) == ["idle", "0x10000"]
    assert throttled({"throttle": reasons(0x1 | 0x2 | 0x4)}) == ["power cap"]
    assert throttled({"throttle": None}) == []


def test_no_driver_says_why():
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        probe, why = open_probe()
        assert probe is None and why.startswith("no NVIDIA driver answers (")
    else:
        pytest.skip("there is a driver here")
