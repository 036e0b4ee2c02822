"""bench/gpu_frame.py on the simulated device and on the stand-in for cupy: its statements about a GPU are reliable."""
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gpu_cases
import gpu_programs
import gpu_rows
import numpy as np
import pytest
import standin_gpu
from device_case import CONFIG, HostCore, four_bundles, on_cpu
from gpu_cases import Cases
from gpu_checks import differences, left_to_cpu, open_simulated, same_bits
from gpu_frame import BARS, ROWS, Report, parsed, start
from gpu_rows import Bench, Launch, Stopped
from simulated_device import SimulatedDevice

from gpu_extract.data import OUTPUTS, Frame, SpecMask
from gpu_extract.device.frames import GpuFrames
from gpu_extract.perf import clock
from gpu_extract.run import extract, prepare
from gpu_extract.simulate import SimConfig, simulate

SCRIPT = Path(gpu_cases.__file__).parents[1] / "gpu_frame.py"
CASE = "tiny-dark-usual"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """The benchmark with the smallest frame, which is made for all tests."""
    folder = tmp_path_factory.mktemp("problems")
    args = parsed(["--simulated", "--limit", "60"])
    args.problems, args.cases, args.frames = folder, [CASE], 1
    cases = Cases(folder, args.nspec, clock.now() + 60)
    start(cases, args)
    yield Bench(Report(60.0), open_simulated, cases, args)
    cases.close()


def anew(bench: Bench, **changes: Any) -> Bench:
    """The same with its own report."""
    return replace(bench, report=Report(60.0, changes.pop("folder", None)), **changes)


def test_rows_are_saved_as_they_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(100.0, tmp_path / "new")
    report.say("frame", "0.1 s", 0.1)
    text = (tmp_path / "new" / "report.txt").read_text()
    assert text == capsys.readouterr().out and "r frame, 500 fibres" in text and "0.1 s" in text
    report.say("hour", "8000", 8000.0)
    report.table()
    lines = {line.split("  ")[0]: line for line in (tmp_path / "new" / "report.txt").read_text().splitlines()}
    assert "MISSED" in lines[BARS["frame"].what] and "reached" in lines[BARS["hour"].what]
    assert "not measured" in lines[BARS["speed"].what]
    assert not report.wrong, "what is slow is not wrong"
    report.say("most", "much", 1e-5)
    assert report.wrong


@pytest.mark.parametrize(("name", "value", "verdict"), [
    ("frame", 0.05, "reached"), ("frame", 0.051, "MISSED"), ("speed", 30.0, "reached"), ("speed", 29.0, "MISSED"),
    ("left", 0, "reached"), ("left", 1, "MISSED"), ("left many", 0.01, "reached"), ("hour", 7199.0, "MISSED"),
    ("command", 4.1, "MISSED"), ("cpu", 1.1, "MISSED"), ("most", 1e-6, "reached"), ("bits", 1, "MISSED"),
    ("cpu", float("nan"), "MISSED"), ("ranks", None, "")])
def test_bars_give_the_verdict_of_a_value(name: str, value: float | None, verdict: str) -> None:
    assert BARS[name].verdict(value) == verdict


def test_what_fails_is_said_and_the_rest_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(100.0)

    def fails() -> None:
        raise ValueError("no\nnumber")

    report.attempt("bits", fails)
    assert report.rows["bits"] == "failed: ValueError: no number"
    report.attempt("cpu", lambda: report.say("cpu", "well"), needs=200.0)
    assert report.rows["cpu"] == "not measured: no time was left"

    def stops() -> None:
        raise Stopped("here")

    with pytest.raises(Stopped):
        report.attempt("check", stops)
    capsys.readouterr()


def test_frames_are_made_beside_and_kept(bench: Bench) -> None:
    """By processes: the simulated frame, and the CPU's frame of it, are the same as here."""
    image, psf, config = bench.cases.given(CASE)
    made = simulate(SimConfig(camera="tiny", nspec=bench.args.nspec))
    assert image.pix.dtype == np.float32 and config.nspec == bench.args.nspec
    np.testing.assert_array_equal(image.pix, made.image.pix)
    np.testing.assert_array_equal(psf.x.coeff, made.psf.x.coeff)
    frame, seconds = bench.cases.cpu(CASE)
    assert frame.flux.shape[0] == bench.args.nspec and seconds > 0
    assert bench.cases.next_of(["tiny-dark-many", CASE]) == CASE
    again = Cases(bench.args.problems, bench.args.nspec, clock.now() + 1)
    assert again.given(CASE)[2] == config, "what is there is found by whoever looks"


def test_the_cpu_s_frame_is_made_bundle_by_bundle(tmp_path: Path) -> None:
    """By several processes, with the bits of the whole frame."""
    cases = Cases(tmp_path, 30, clock.now() + 60)
    cases.start([CASE], what="both", most=2)
    frame, _ = cases.cpu(CASE)
    whole = extract(*cases.given(CASE))
    assert whole is not None
    for name in (*OUTPUTS, "fibres", "wave"):
        np.testing.assert_array_equal(getattr(frame, name), getattr(whole, name), err_msg=name)
    cases.close()


def test_a_frame_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    cases = Cases(tmp_path, 5, clock.now() + 60)
    cases.start(["q-dark-usual"], what="frames")
    with pytest.raises(RuntimeError, match=r"q-dark-usual-5\.frame was not made: .*camera"):
        cases.given("q-dark-usual")
    cases.close()
    late = Cases(tmp_path, 5, clock.now())
    late.start([CASE], what="frames")
    with pytest.raises(TimeoutError):
        late.given(CASE)
    late.close()


def test_nothing_works_while_it_is_quiet(tmp_path: Path) -> None:
    """Including processes that its processes have started."""
    child = f"import time\nwhile True: open({str(tmp_path / 'clock')!r}, 'a').write('.'); time.sleep(0.005)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    cases = Cases(tmp_path, 5, clock.now() + 60)
    cases._processes.append(subprocess.Popen([sys.executable, "-c", parent], start_new_session=True))

    def ticks() -> int:
        return (tmp_path / "clock").stat().st_size if (tmp_path / "clock").exists() else 0

    def grows() -> bool:
        before, until = ticks(), clock.now() + 5
        while ticks() == before and clock.now() < until:
            clock.sleep(0.01)
        return ticks() > before

    assert grows()
    with cases.quiet():
        clock.sleep(0.1)
        before = ticks()
        clock.sleep(0.3)
        assert ticks() == before
    assert grows()
    cases.close()
    clock.sleep(0.1)
    before = ticks()
    clock.sleep(0.2)
    assert ticks() == before, "and nothing is left at the end"


def test_the_check_ends_the_ladder_where_it_breaks(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    class Broken(SimulatedDevice):
        def download(self, source: Any, target: np.ndarray, stream: Any) -> None:
            super().download(source, target, stream)
            stream.queue.append(lambda: target.fill(1))

    good = anew(bench)
    gpu_rows.check(good)
    assert good.report.rows["check"].endswith("passes all checks")
    wrong = anew(bench, opened=lambda **_: GpuFrames(Broken))
    with pytest.raises(Stopped, match="copies FAILED"):
        gpu_rows.check(wrong)
    capsys.readouterr()


def test_the_report_of_a_frame_is_complete(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    """Everything in the report of a frame."""
    found = anew(bench)
    gpu_rows.frames(found)
    rows = found.report.rows
    assert re.fullmatch(r"\d+ ms, 3 graphs", rows["second"])
    assert re.fullmatch(r"\d+ of 20, tiny-dark-usual", rows["left"])
    assert rows[f"frame {CASE}"].endswith("of 1)") and rows["memory"].endswith("pieces of [1, 2, 1] bundles")
    assert {"first", "steps", "overlap", "h2d", "d2h"} <= set(rows)
    assert "queue" in rows["host stages"] and "decorrelate" not in rows["host stages"].split("wait")[0]
    assert "solve" in rows["device stages"] and "solve" in rows["host steps"]
    capsys.readouterr()


def test_a_capture_that_fails_is_said(bench: Bench, monkeypatch: pytest.MonkeyPatch,
                                      capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(*_: Any) -> Any:
        raise RuntimeError("no capture today")

    monkeypatch.setattr(SimulatedDevice, "capture", refuse)
    found = anew(bench)
    gpu_rows.frames(found)
    second = found.report.rows["second"]
    assert re.fullmatch(r"\d+ ms, no graphs; simulated device cannot capture .*no capture today", second)
    capsys.readouterr()


def test_kernels_by_events(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                           capsys: pytest.CaptureFixture[str]) -> None:
    """Through the module that calls cupy: events before and after every launch, 1 ms apart in the stand-in; the device
    is busy before the first."""
    standin_gpu.install(monkeypatch)
    from gpu_extract.device.cuda.real import CupyDevice

    found = anew(bench, folder=tmp_path, opened=lambda **options: GpuFrames(lambda: CupyDevice(0), **options))
    gpu_rows.kernels(found)
    count = int(found.report.rows["kernels"].split()[0])
    assert found.report.rows["kernels"] == f"{count} launches, sum {count:.1f} ms, first to last 1.0 ms, one slot"
    table = (tmp_path / f"kernels-{CASE}.txt").read_text().splitlines()
    ms = [float(line[40:].split()[0]) for line in table]
    assert ms == sorted(ms, reverse=True) and sum(ms) == pytest.approx(count)
    assert any(line.startswith("sweeps.factor(8) ") for line in table)
    assert standin_gpu.CALLS.count("spin") == 1
    assert "begin_capture" not in standin_gpu.CALLS, "kernels of a graph have no times"
    capsys.readouterr()


def test_launches_are_marked_on_their_stream() -> None:
    """Once each, in order, and the device is unchanged afterwards."""
    device = SimulatedDevice()
    backend = GpuFrames(lambda: device, core=HostCore, slots=1)
    case = four_bundles()
    given = case.image, case.psf, CONFIG
    backend.watch(gpu_rows.Recorder())
    launches = gpu_rows.watched(device, lambda: gpu_rows.timed(backend, given, 1))
    assert "launch" not in vars(device) and len(launches) > 100
    stream = launches[0].began.stream
    places = [place for one in launches for place in (one.began.place, one.ended.place)]
    assert all(one.began.stream is stream is one.ended.stream for one in launches)
    assert places == sorted(places) and all(one.ended.place == one.began.place + (one.count > 0) for one in launches)


def test_the_table_of_kernels() -> None:
    device = SimpleNamespace(between=lambda began, ended: ended - began)
    launches = [Launch("a", 10, 0.0, 0.001), Launch("b", 5, 0.001, 0.004), Launch("a", 30, 0.004, 0.0045)]
    table, total = gpu_rows.table_of(device, launches)
    assert total == pytest.approx(4.5)
    assert [line.split() for line in table] == [
        ["b", "3.000", "ms", "1", "launches,", "longest", "3.000", "ms,", "most", "lanes", "5"],
        ["a", "1.500", "ms", "2", "launches,", "longest", "1.000", "ms,", "most", "lanes", "30"]]


def test_copies_and_kernels_overlap() -> None:
    spans = [["copy h2d", 0.0, 1.0], ["solve", 0.5, 1.0], ["normal", 0.75, 0.5], ["copy d2h", 2.0, 1.0]]
    assert gpu_rows.overlapped(spans) == pytest.approx(0.25)
    assert gpu_rows.overlapped([]) == 0.0


def changed(frame: Frame, name: str, value: float, place: tuple[int, ...]) -> Frame:
    """A frame that differs in one bin."""
    array = getattr(frame, name).copy()
    array[place] += np.asarray(value, array.dtype)
    return replace(frame, **{name: array})


def test_differences_count_bins_that_are_good_on_the_cpu() -> None:
    """In bins that are good on the CPU; a bin lost on the device is no small difference."""
    cpu = on_cpu()
    zero = differences(cpu, cpu)
    assert zero.pop("bins") == ((cpu.pixmask_fraction < 0.5) & (cpu.ivar > 0)).sum() and not any(zero.values())
    good = next((int(i), int(j)) for i, j in np.argwhere((cpu.pixmask_fraction < 0.5) & (cpu.ivar > 0)))
    sigma = 1 / np.sqrt(cpu.ivar[good])
    assert differences(changed(cpu, "flux", 3 * sigma, good), cpu)["flux"] == pytest.approx(3)
    assert differences(changed(cpu, "ivar", 0.5 * cpu.ivar[good], good), cpu)["ivar"] == pytest.approx(0.5)
    assert differences(changed(cpu, "resolution", 0.25, (good[0], 3, good[1])), cpu)["R"] == pytest.approx(0.25)
    assert differences(changed(cpu, "mask", 1 << 20, good), cpu)["masks"] == 1
    lost = differences(changed(cpu, "ivar", -cpu.ivar[good], good), cpu)
    assert lost["lost"] == 1 == lost["ivar"]
    weak = changed(cpu, "mask", SpecMask.WEAKBIN, good)
    found = differences(changed(weak, "flux", 3 * sigma, good), weak)
    assert found["flux"] == 0 and found["flux seen"] == pytest.approx(3)
    with pytest.raises(RuntimeError, match="no frame"):
        differences(None, cpu)


def test_the_bits_of_a_frame_depend_on_nothing_else(bench: Bench) -> None:
    assert same_bits(bench.cases.given(CASE), open_simulated) == []


@pytest.mark.parametrize(("fault", "told"), [("stale", "replayed with other pixels"), ("pieces", "{'most': 1}")])
def test_bits_that_differ_are_found(bench: Bench, fault: str, told: str) -> None:
    """A graph that keeps the pixels of the first frame; a core whose last digit depends on the piece."""
    class Stale(SimulatedDevice):
        def capture(self, work: Any, stream: Any) -> Any:
            return [thing for thing in super().capture(work, stream) if "upload" not in thing.__qualname__]

    class Pieces(HostCore):
        def run(self, normal: Any, out: Any, stream: Any, recorder: Any) -> None:
            super().run(normal, out, stream, recorder)
            self._device.call(lambda: np.multiply(out.flux.data, 1 + 1e-15 * self._shape.bundles, out.flux.data),
                              stream)

    def opened(ranks: int = 1, **options: Any) -> GpuFrames:
        return GpuFrames(Stale if fault == "stale" else SimulatedDevice,
                         core=HostCore if fault == "stale" else Pieces, **options)

    case = four_bundles()
    wrong = same_bits((case.image, case.psf, CONFIG), opened)
    assert any(told in line for line in wrong), wrong


def test_the_report_of_all_cases_has_rows_and_a_summary(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    """Each against the CPU, and their summary."""
    found = anew(bench)
    gpu_rows.all_cases(found)
    rows, values = found.report.rows, found.report.values
    assert "masks equal" in rows[CASE] and "fibres (" in rows[CASE]
    assert 0 < values["cpu"] < 1 and 0 < values["most"] < 1e-6 and values["left"] == int(rows["left"].split()[0])
    assert not found.report.wrong
    capsys.readouterr()


def test_a_wrong_frame_is_wrong(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    class Off(HostCore):
        job = staticmethod(lambda: prepare(*bench.cases.given(CASE)[1:]))

        def _work(self, normal: Any, out: Any) -> None:
            super()._work(normal, out)
            out.flux.data[...] *= 1 + 1e-6

    found = anew(bench, opened=lambda **options: GpuFrames(SimulatedDevice, core=Off, **options))
    gpu_rows.all_cases(found)
    assert found.report.wrong and found.report.values["cpu"] > 1
    capsys.readouterr()


def test_fibres_left_to_the_cpu_are_added_up() -> None:
    assert left_to_cpu(None) == 0
    assert left_to_cpu(SimpleNamespace(notes={"bundles": {0: {"on_cpu": 2}, 5: {}, 10: {"on_cpu": 1}}})) == 3


def test_the_report_of_two_passes_is_complete(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    found = anew(bench)
    gpu_rows.two_passes(found)
    said = found.report.rows["passes"]
    assert re.search(r"0 fibres left to the CPU; flux .*masks equal; \d+ pixels rejected, 0 otherwise", said)
    assert not found.report.wrong
    capsys.readouterr()


def test_the_report_of_speed_compares_with_the_cpu(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    found = anew(bench)
    gpu_rows.speed(found)
    assert re.fullmatch(r"\d+\.\d s a frame on the CPU, from 20 of 20 fibres", found.report.rows["speed"])
    found.report.values[f"frame {CASE}"] = 1e-3
    gpu_rows.speed(found)
    assert found.report.values["speed"] > 1
    capsys.readouterr()


def test_what_needs_files_says_so(bench: Bench, monkeypatch: pytest.MonkeyPatch,
                                  capsys: pytest.CaptureFixture[str]) -> None:
    found = anew(bench)
    monkeypatch.setattr(found.args, "simulated", False)
    monkeypatch.setattr(gpu_programs, "find_spec", lambda name: None)
    gpu_programs.command(found)
    gpu_programs.files(found)
    assert found.report.rows == {"command": "not measured: needs astropy", "hour": "not measured: needs astropy"}
    capsys.readouterr()


def test_what_a_program_says(bench: Bench) -> None:
    assert gpu_programs.run([sys.executable, "-c", "print(5)"], bench) == "5\n"
    fails = [sys.executable, "-c", "raise SystemExit('no such metric')"]
    with pytest.raises(RuntimeError, match="exit code 1: no such metric"):
        gpu_programs.run(fails, bench)
    assert gpu_programs.run(fails, bench, must=False) == "no such metric\n"


def test_launches_in_the_table_of_ncu_are_added_up() -> None:
    """Sums of launches, means weighted by their time, in ncu's units."""
    names = ['"ID"', '"Kernel Name"', *(f'"{metric}"' for metric in gpu_programs.METRICS.values())]
    units = ['""', '""', '"us"', '"Mbyte"', '"Kbyte"', '"%"', '"register/thread"', '"%"']
    launches = [["0", "all_ask_9", "1,000.0", "2", "1000", "10", "64", "4"],
                ["1", "all_ask_9", "3,000.0", "4", "1000", "30", "64", "8"],
                ["2", "all_mix", "5000", "0", "0", "50", "32", "0"]]
    text = "\n".join(["==PROF== Connected", "device check", ",".join(names), ",".join(units),
                      *(",".join(f'"{value}"' for value in launch) for launch in launches)])
    table = gpu_programs.ncu_table(text)
    assert [line.split() for line in table[1:]] == [["all_mix", "5.000", "1", "0.0", "0", "50.0", "0.0", "32"],
                                                    ["all_ask_9", "4.000", "2", "8.0", "2", "25.0", "7.0", "64"]]
    with pytest.raises(RuntimeError, match="ncu said: ==ERROR== no permission"):
        gpu_programs.ncu_table("==ERROR== no permission")


def test_the_whole_ladder(tmp_path: Path) -> None:
    """The command, all rows, ranks as processes of their own."""
    done = subprocess.run([sys.executable, SCRIPT, "--simulated", "--save", tmp_path], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    text = (tmp_path / "report.txt").read_text()
    assert text in done.stdout or all(line in done.stdout for line in text.splitlines())
    for name in ("bits", "cpu", "most"):
        assert re.search(f"{re.escape(BARS[name].what)} .* reached", text), name
    assert re.search(r"\] 2 ranks: \d+\.\d+ frames/s .* \d+ fibres a frame left", text)
    assert "\n".join(text.splitlines()).count("failed:") == 1, "no ceilings are measured without cupy"
    assert (tmp_path / f"kernels-{CASE}.txt").exists()


def test_it_ends_when_its_time_is_over(tmp_path: Path) -> None:
    """Even if something hangs: here all rows, waiting for a frame that is not made in time."""
    args = ["--simulated", "--rows", "frame", "--limit", "2"]
    code = ("import sys, time, gpu_frame, gpu_rows\n"
            "gpu_frame.ROWS['frame'] = (lambda bench: time.sleep(600),)\n"
            f"sys.argv[1:] = {args}\nraise SystemExit(gpu_frame.main())")
    began = clock.now()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60,
                          env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(SCRIPT.parent), "TMPDIR": str(tmp_path)})
    assert done.returncode == 3 and "2 s are over" in done.stdout, done.stdout + done.stderr
    assert clock.now() - began < 25 and not any(tmp_path.iterdir())


def test_rows_can_be_chosen() -> None:
    assert parsed(["--rows", "kernels,frame"]).rows == ["frame", "kernels"]
    small = parsed(["--simulated", "--nspec", "25", "--cases", "b-dark-usual"])
    assert (small.nspec, small.cases, small.case) == (25, ["b-dark-usual"], "tiny-dark-usual"), "what is given counts"
    assert parsed([]).rows == list(ROWS) and parsed([]).limit == 470 and len(parsed([]).cases) == 12
    with pytest.raises(SystemExit):
        parsed(["--rows", "frames"])
