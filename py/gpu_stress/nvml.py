"""State of the GPUs as their driver tells it (nvidia-ml-py): load, memory, clocks, power, heat, throttling, errors."""
from collections.abc import Callable, Mapping
from typing import Any

# bits of nvmlDeviceGetCurrentClocksEventReasons (older drivers: ...ThrottleReasons)
REASONS = {
    0x001: "idle", 0x002: "application clocks", 0x004: "power cap", 0x008: "hardware slowdown",
    0x010: "sync boost", 0x020: "software thermal", 0x040: "hardware thermal", 0x080: "power brake",
    0x100: "display clocks", 0x200: "board limit", 0x400: "reliability"}
MOST_XIDS = 100
BENIGN = ("idle", "application clocks", "sync boost", "display clocks")    # not a sign of trouble


class GpuProbe:
    """Reads all GPUs of the machine; a quantity that a device does not report is None.

    nvml: the module pynvml, initialised
    """

    def __init__(self, nvml: Any):
        self._nvml = nvml
        self._handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        self._events = [self._listen(handle) for handle in self._handles]

    def sample(self) -> list[dict[str, Any]]:
        """One entry per GPU: load and memory_load in per cent, bytes, MHz, W, degrees C, names of reasons; errors of
        memory that were corrected, and that were not, since the driver was loaded; XIDs since the last sample."""
        return [self._sample(number, handle) for number, handle in enumerate(self._handles)]

    def facts(self) -> list[dict[str, Any]]:
        """Constant properties: name, memory, driver, power limit."""
        nvml = self._nvml
        driver = self._ask(nvml.nvmlSystemGetDriverVersion)
        return [{"index": number, "name": self._ask(nvml.nvmlDeviceGetName, handle), "driver": driver,
                 "memory": self._field(self._ask(nvml.nvmlDeviceGetMemoryInfo, handle), "total"),
                 "power_limit": _scaled(self._ask(nvml.nvmlDeviceGetEnforcedPowerLimit, handle), 1e-3)}
                for number, handle in enumerate(self._handles)]

    def _sample(self, number: int, handle: Any) -> dict[str, Any]:
        nvml = self._nvml
        load = self._ask(nvml.nvmlDeviceGetUtilizationRates, handle)
        memory = self._ask(nvml.nvmlDeviceGetMemoryInfo, handle)
        bits = self._first(("nvmlDeviceGetCurrentClocksEventReasons",
                            "nvmlDeviceGetCurrentClocksThrottleReasons"), handle)
        return {
            "index": number, "load": self._field(load, "gpu"), "memory_load": self._field(load, "memory"),
            "memory_used": self._field(memory, "used"), "memory_total": self._field(memory, "total"),
            "clock_sm": self._ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            "clock_memory": self._ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM),
            "power": _scaled(self._ask(nvml.nvmlDeviceGetPowerUsage, handle), 1e-3),
            "temperature": self._first(("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature"), handle,
                                       nvml.NVML_TEMPERATURE_GPU),
            "throttle": None if bits is None else reasons(bits),
            "ecc_corrected": self._ask(nvml.nvmlDeviceGetTotalEccErrors, handle, nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED,
                                       nvml.NVML_VOLATILE_ECC),
            "ecc_uncorrected": self._ask(nvml.nvmlDeviceGetTotalEccErrors, handle,
                                         nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC),
            "xids": self._xids(self._events[number])}

    def _listen(self, handle: Any) -> Any:
        """The collector of a GPU's critical errors (XIDs) from now on; None if its driver does not report them."""
        events = self._ask(self._nvml.nvmlEventSetCreate)
        if events is None:
            return None
        try:
            self._nvml.nvmlDeviceRegisterEvents(handle, self._nvml.nvmlEventTypeXidCriticalError, events)
        except self._nvml.NVMLError:
            return None
        return events

    def _xids(self, events: Any) -> list[int] | None:
        """The XIDs received so far, at most as many as a sample can hold."""
        if events is None:
            return None
        found: list[int] = []
        while len(found) < MOST_XIDS and (event := self._ask(self._nvml.nvmlEventSetWait_v2, events, 0)) is not None:
            found.append(int(event.eventData))
        return found

    def _ask(self, function: Callable[..., Any], *args: Any) -> Any:
        try:
            return function(*args)
        except self._nvml.NVMLError:
            return None

    def _first(self, names: tuple[str, ...], *args: Any) -> Any:
        """The answer of the first function that exists and succeeds: names differ between driver versions."""
        for name in names:
            function = getattr(self._nvml, name, None)
            answer = None if function is None else self._ask(function, *args)
            if answer is not None:
                return answer
        return None

    @staticmethod
    def _field(structure: Any, name: str) -> int | None:
        return None if structure is None else int(getattr(structure, name))


def reasons(bits: int) -> list[str]:
    """The reasons for reduced clocks, in words."""
    known = [word for bit, word in REASONS.items() if bits & bit]
    rest = bits & ~sum(REASONS)
    return known + ([f"0x{rest:x}"] if rest else [])


def open_probe() -> tuple[GpuProbe | None, str]:
    """(probe, ""), or (None, the reason)."""
    try:
        import pynvml
    except ImportError:
        return None, "nvidia-ml-py is not installed"
    try:
        pynvml.nvmlInit()
        return GpuProbe(pynvml), ""
    except pynvml.NVMLError as error:
        return None, f"no NVIDIA driver answers ({error})"


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def throttled(sample: Mapping[str, Any]) -> list[str]:
    """The reasons in a GPU's sample that are a sign of trouble."""
    return [word for word in sample.get("throttle") or () if word not in BENIGN]
