"""What a command prints for somebody who mistyped, mixed options up, or reads its log later."""
import argparse
import cProfile
import importlib
import inspect
import io
import logging
import os
import py_compile
import re
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits
from astropy.table import Table
from numba import njit
from numba.core.config import reload_config

from edge_files import small_frame
from gpu_extract import __version__
from gpu_extract.cli.common import NO_PROCESS, explain, log, on_terminal, run_main, show_progress, start_logging
from gpu_extract.cli.compare import build_parser, main
from gpu_extract.cli.report import Progress
from gpu_extract.errors import ExitCode, InputError, check_local
from gpu_extract.io.frame import read_frame, write_frame
from gpu_extract.io.image import read_image
from gpu_extract.io.psf import read_psf
from gpu_extract.libraries import NoRoomError, check_room
from gpu_extract.simulate import SimConfig
from gpu_extract.simulate.header import fibermap_of
from gpu_extract.simulate.instrument import psf_model

BIN = Path(__file__).resolve().parents[2] / "bin"
PROGRAMS = ("gpu_extract.cli.extract", "gpu_extract.cli.exposure", "gpu_extract.cli.simulate",
            "gpu_extract.cli.compare", "gpu_extract.cli.setup", "gpu_extract.cli.mps", "gpu_perf.cli.perf",
            "gpu_perf.cli.sweep", "gpu_perf.cli.track", "gpu_psf.cli.psf", "gpu_stress.cli.stress")


def said_by(module: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that a program prints for words that it cannot use."""
    assert importlib.import_module(module).main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize(("module", "words", "meant"), [
    ("gpu_extract.cli.extract", "-o x.fits --no_scores", "--no-scores for --no_scores"),
    ("gpu_extract.cli.extract", "-o x.fits --nspc=4", "--nspec for --nspc"),
    ("gpu_extract.cli.extract", "--ouput x.fits", "--output for --ouput"),
    ("gpu_extract.cli.extract", "-o x.fits -psf psf.fits", "--psf for -psf"),
    ("gpu_extract.cli.extract", "-o x.fits --core bandd", "banded"),
    ("gpu_extract.cli.extract", "-o x.fits --loglevel degub", "debug"),
    ("gpu_extract.cli.extract", "-o x.fits --preset desi_r", "desi-r"),
    ("gpu_extract.cli.exposure", "--recomptue list.txt", "--recompute for --recomptue"),
    ("gpu_extract.cli.simulate", "-o x.fits --camera tinny", "tiny"),
    ("gpu_extract.cli.simulate", "-o x.fits --flavor sience", "science"),
    ("gpu_extract.cli.simulate", "-o x.fits --psf p.fits", "--psf-out for --psf"),
    ("gpu_extract.cli.extract", "-o x.fits --wave 4,5,1", "--wavelength for --wave"),
    ("gpu_extract.cli.compare", "a.fits b.fits --plott x.png", "--plot for --plott"),
    ("gpu_extract.cli.mps", "--requre ls", "--require for --requre"),
    ("gpu_perf.cli.perf", "reprot x.json", "report"),
    ("gpu_perf.cli.perf", "report x.json --htlm y", "--html for --htlm"),
    ("gpu_perf.cli.sweep", "run out --modes strnog --no-plots", "strong"),
    ("gpu_perf.cli.sweep", "report out --time exract", "extract"),
    ("gpu_perf.cli.track", "pgae", "page"),
    ("gpu_stress.cli.stress", "gemm -d flot32", "float32"),
    ("gpu_stress.cli.stress", "campaign out --retyr", "--retry for --retyr")])
def test_what_was_probably_meant(module, words, meant, capsys):
    assert f"; did you mean {meant}?" in said_by(module, words.split(), capsys)


def parsers():
    """Every parser: of each program, and of each of its subcommands with that word."""
    for module in PROGRAMS:
        made = importlib.import_module(module).build_parser()
        yield module, [], made
        for action in made._actions:
            if isinstance(action, argparse._SubParsersAction):
                yield from ((module, [name], command) for name, command in action.choices.items())


def test_every_option_of_every_command_is_known_when_a_letter_is_missing():
    """The last but one letter is left out; another option that is equally close is accepted."""
    tried = 0
    for module, words, parser in parsers():
        for option in (o for a in parser._actions if a.help != argparse.SUPPRESS for o in a.option_strings):
            wrong = option[:-2] + option[-1]
            if len(option) < 7 or wrong in parser._option_string_actions:
                continue
            with pytest.raises(InputError) as said:
                importlib.import_module(module).build_parser().parse_args([*words, wrong])
            assert re.search(rf"did you mean --[a-z-]+ for {wrong}\?", str(said.value)), (module, words, option)
            tried += 1
    assert tried > 200


@pytest.mark.parametrize(("module", "words", "attribute", "value"), [
    ("gpu_extract.cli.simulate", "-o x.fits --flexure -0.3,1.2", "flexure", (-0.3, 1.2)),
    ("gpu_extract.cli.simulate", "-o x.fits --psf-error -1e-2", "psf_error", -0.01),
    ("gpu_extract.cli.extract", "-o x.fits -w -.5,1,1", "wavelength", (-0.5, 1.0, 1.0)),
    ("gpu_psf.cli.psf", "preprocess -i a -o x.fits --dispersion -y", "dispersion", "-y")])
def test_a_value_may_begin_with_a_minus(module, words, attribute, value):
    """argparse itself takes -0.3 as a value, but -0.3,1.2 and -y as unknown options."""
    assert getattr(importlib.import_module(module).build_parser().parse_args(words.split()), attribute) == value


def test_an_option_that_does_not_exist_is_no_value():
    for words in ("a.fits b.fits -x", "a.fits -x", "a.fits b.fits -9"):
        with pytest.raises(InputError):
            build_parser().parse_args(words.split())


def test_nothing_is_suggested_for_a_word_like_no_option(capsys):
    assert "did you mean" not in said_by("gpu_extract.cli.extract", ["-o", "x.fits", "--xyzzy"], capsys)
    assert "did you mean" not in said_by("gpu_extract.cli.extract", ["-o", "x.fits", "--nspec"], capsys)


@pytest.mark.parametrize("name", sorted(path.name for path in BIN.iterdir()))
def test_every_program_says_its_version(name):
    done = subprocess.run([sys.executable, str(BIN / name), "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"{name} {__version__}\n"


@pytest.fixture(scope="module")
def small_frames(tmp_path_factory):
    """A folder with two frames that differ."""
    folder, frame = tmp_path_factory.mktemp("frames"), small_frame()
    write_frame(folder / "a.fits", frame)
    write_frame(folder / "b.fits", replace(frame, ivar=2 * frame.ivar))
    return folder


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["a.fits", "a.fits"], ["a.fits", "b.fits"],
                                   ["a.fits", "none.fits"]])
@pytest.mark.parametrize("both", [False, True])
def test_whoever_reads_may_leave(words, both, tmp_path, small_frames):
    """`gpu_compare a b | head -1` once ended with exit code 3, `gpu_extract ... 2>&1 | head -1` with 120: the exit code
    must be that of the work."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, str(BIN / "gpu_compare"), *words], stdout=write, cwd=small_frames,
                          stderr=write if both else subprocess.PIPE, check=False,
                          env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"})
    os.close(write)
    said = b"" if both or "none.fits" not in words else b"gpu_compare: error: none.fits: no such file; check the path\n"
    wanted = ExitCode.CHECK_FAILED if "b.fits" in words else ExitCode.INPUT if "none.fits" in words else ExitCode.DONE
    assert (done.returncode, done.stderr or b"") == (wanted, said)


@pytest.mark.parametrize("program", ["gpu_perf", "gpu_stress"])
def test_whoever_reads_a_profile_may_leave(program, tmp_path):
    """`gpu_perf proflog FILE | head` once ended in an internal error."""
    profile = cProfile.Profile()
    profile.runcall(sorted, range(9), key=lambda x: -x)
    profile.dump_stats(tmp_path / "profile")
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, str(BIN / program), "proflog", str(tmp_path / "profile")], stdout=write,
                          stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (ExitCode.DONE, b"")


@pytest.mark.parametrize(("module", "words"), [
    ("gpu_extract.cli.compare", ["a.fits", "a.fits", "--limits", "NAME"]), ("gpu_perf.cli.perf", ["nsys", "NAME"]),
    ("gpu_perf.cli.track", ["list", "--store", "NAME"]), ("gpu_stress.cli.stress", ["report", "-o", ".", "NAME"])])
def test_a_name_that_is_too_long(module, words, small_frames, monkeypatch, capsys):
    """Asking whether such a file exists once ended in an internal error."""
    monkeypatch.chdir(small_frames)
    words = ["x" * 300 if word == "NAME" else word for word in words]
    assert said_by(module, words, capsys).endswith(": the file name is too long; give a shorter one")


def test_names_that_are_no_text_in_the_title_of_a_picture(small_frames, tmp_path):
    """matplotlib refused them, which was an internal error."""
    odd = tmp_path / "a\udcff.fits"
    odd.write_bytes((small_frames / "a.fits").read_bytes())
    picture = tmp_path / "p\udcff.png"
    assert main([str(odd), str(small_frames / "a.fits"), "--plot", str(picture)]) == 0 and picture.exists()


def test_libraries_that_do_not_fit_into_memory():
    """With little memory allowed (ulimit -v), numpy cannot be loaded."""
    error = ImportError("libscipy_openblas64_.so: failed to map segment from shared object")
    assert explain(error) == explain(MemoryError())


def test_a_limit_of_threads_is_named():
    """As under `ulimit -u`, or a container's limit: it was an internal error."""
    message, code = explain(RuntimeError("can't start new thread"))
    assert code == ExitCode.INTERNAL and message.startswith("the system allows no further thread or process: raise")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_slow_reader_of_a_pipe_that_does_not_wait(unbuffered):
    """A process that shares the pipe has made it non-blocking: text was lost (unbuffered), or an internal error."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    filled = 0
    with suppress(BlockingIOError):
        while True:
            filled += os.write(writer, b"x" * 4096)
    with subprocess.Popen([sys.executable, BIN / "gpu_compare", "--help"], stdout=writer,
                          env={**os.environ, "PYTHONUNBUFFERED": unbuffered}) as program:
        os.close(writer)
        with suppress(subprocess.TimeoutExpired):
            program.wait(0.5)            # either it waits for the reader, or it has lost its words
        with open(reader, "rb") as pipe:
            said = pipe.read()[filled:].decode()
    assert program.returncode == 0 and said.startswith("usage: gpu_compare") and said.endswith("\n")


def test_no_folder_for_temporary_files(monkeypatch):
    """A read-only system, or a full disk under /tmp: it was taken for a current folder that no longer exists."""
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/no/such/folder"])
    with pytest.raises(FileNotFoundError) as found:
        tempfile._get_default_tempdir()
    matplotlibs = OSError("Matplotlib requires access to a writable cache directory, but there was an issue with the "
                          "default path (/home), and a temporary directory could not be created; set the MPLCONFIGDIR "
                          "environment variable to a writable directory")
    for error in found.value, matplotlibs:
        message, code = explain(error)
        assert code == ExitCode.OUTPUT and "set TMPDIR" in message


@pytest.mark.parametrize("words", [
    "gpu_compare a b", "gpu_extract -i a -p b -o c.fits", "gpu_extract --device-info", "gpu_simulate -o c.fits",
    "gpu_psf shift -i a -p b -o c.fits", "gpu_psf fit -i a -p b -o c.fits", "gpu_stress gemm",
    "gpu_extract_exposure --simulate 1 -o c"])
def test_memory_that_is_too_little_for_the_libraries(words, tmp_path):
    """With about 420 MB allowed, OpenBLAS asked for more without end, and no signal but SIGKILL ended it; with less, it
    ended with exit code 1, or an internal error came from llvmlite."""
    program, *options = words.split()
    done = subprocess.run(["bash", "-c", 'ulimit -v 250000; exec "$@"', "_", sys.executable, BIN / program, *options],
                          cwd=tmp_path, capture_output=True, text=True, timeout=60)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2 and "of address space, which the libraries need, are refused: raise the limit" in line
    assert not any(tmp_path.iterdir())


def test_memory_that_was_used_before_lapack_is_loaded():
    """While rank 0 loads the libraries, it reads the image: with 560 MB allowed and an image of 4000 x 4000 pixels
    OpenBLAS asked for more without end."""
    code = ("import re, resource, sys, numpy, scipy, gpu_extract.libraries as libraries\n"
            "used = int(re.search(r'VmSize:\\s+(\\d+)', open('/proc/self/status').read())[1]) << 10\n"
            "resource.setrlimit(resource.RLIMIT_AS, (used + (50 << 20), -1))\n"
            "try:\n"
            "    import gpu_extract.lapack\n"
            "except libraries.NoRoomError as error:\n"
            "    sys.exit(str(error))\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert done.returncode == 1 and done.stderr.startswith("96 MB of address space, which the libraries need")


def test_threads_need_memory(monkeypatch):
    """As many as there are cores, which OpenBLAS does not exceed."""
    refused = []

    def no_mmap(_, size, flags):
        refused.append(size)
        raise OSError

    monkeypatch.setattr("gpu_extract.libraries.mmap.mmap", no_mmap)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    for threads, of_openblas, said in ((1, 1, False), (2, 2, True), (3, 3, True), (8, 3, True), (None, 3, True)):
        with pytest.raises(NoRoomError) as caught:
            check_room(threads)
        assert refused[-1] == refused[0] + (of_openblas - 1) * (refused[1] - refused[0] if of_openblas > 1 else 0)
        assert ("OPENBLAS_NUM_THREADS" in str(caught.value)) == said
    assert refused[1] > refused[0]


def test_threads_of_the_libraries_that_the_system_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenBLAS sends the process a SIGINT: it ended with exit code 75, as if started again it might succeed."""
    begun, start = list[threading.Thread](), threading.Thread.start

    def limited(thread: threading.Thread) -> None:
        if len(begun) == 2:
            raise RuntimeError("can't start new thread")
        begun.append(thread)
        start(thread)

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    monkeypatch.setattr(threading.Thread, "start", limited)
    check_room(1)
    check_room(2)
    assert len(begun) == 2
    begun.clear()
    with pytest.raises(RuntimeError) as caught:
        check_room(3)
    assert explain(caught.value) == (NO_PROCESS, ExitCode.INTERNAL) and not any(thread.is_alive() for thread in begun)


@pytest.mark.parametrize("size", [16, 20, 200])
def test_byte_code_of_which_a_full_disk_has_left_a_part(size, tmp_path, monkeypatch, capsys):
    """Python 3.11 keeps the part of it that it could write, and fails in every later run; its error names no file.

    A whole module that raises such an error itself is not such a case, nor is one that cannot be compiled.
    """
    source = tmp_path / f"half_of_{size}.py"
    source.write_text("values = " + repr(list(range(300))) + "\nraise EOFError('of its own')\n")
    kept = Path(py_compile.compile(str(source), doraise=True))
    whole = kept.read_bytes()
    monkeypatch.syspath_prepend(str(tmp_path))
    words = [str(tmp_path / "a"), str(tmp_path / "b")]

    def body(args):
        importlib.import_module(source.stem)

    for code, byte_code, said in ((2, whole[:size], f"{kept}: the byte code of this module is damaged"),
                                  (4, whole, "internal error: EOFError: of its own")):
        kept.write_bytes(byte_code)
        importlib.invalidate_caches()
        assert run_main(build_parser, body, words) == code
        assert said in capsys.readouterr().err
    source.write_text("values = (")
    assert run_main(build_parser, body, words) == 4 and "internal error: SyntaxError" in capsys.readouterr().err


def test_json_that_is_nested_too_deep(tmp_path, small_frames, monkeypatch, capsys):
    """It once ended in an internal error; as a profile, it filled the machine's memory."""
    monkeypatch.chdir(small_frames)
    deep = tmp_path / "machine.json"
    deep.write_text("[" * 100000 + "]" * 100000)
    words = ["a.fits", "a.fits", "--limits", str(deep)]
    assert "not a file of limits" in said_by("gpu_extract.cli.compare", words, capsys)
    assert "is not complete JSON" in said_by("gpu_perf.cli.perf", ["report", str(deep)], capsys)
    assert "is not a profile" in said_by("gpu_perf.cli.perf", ["proflog", str(deep)], capsys)
    (tmp_path / "results.jsonl").write_bytes(deep.read_bytes() + b"\n")
    said_by("gpu_stress.cli.stress", ["report", str(tmp_path)], capsys)


@pytest.mark.parametrize("words", [["--help"], ["a.fits", "a.fits"]])
def test_output_on_a_full_disk(words, small_frames):
    """It once ended with 120 and an exception at Python's exit."""
    with open("/dev/full", "wb") as full:
        done = subprocess.run([sys.executable, str(BIN / "gpu_compare"), *words], stdout=full, stderr=subprocess.PIPE,
                              cwd=small_frames, check=False)
    assert done.returncode == ExitCode.OUTPUT
    assert done.stderr.startswith(b"gpu_compare: error: standard output cannot be written: No space left on device; ")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("name", ["s3://bucket/a.fits", "https://host/a.fits", "night/s3://bucket/a.fits"])
def test_addresses_are_no_files(name, extract, files, tmp_path):
    scheme = "https" if "https" in name else "s3"
    for option in ("-i", "-p", "-f", "-t", "-o", "-m"):
        said = extract(option, name).error
        assert f"{name}: is an address ({scheme}://), not a file: " in said, option
    with pytest.raises(InputError, match="is an address"):
        read_frame(name)


@pytest.mark.parametrize(("module", "words", "option"), [
    ("gpu_extract.cli.extract", ["-i", "", "-p", "", "-o", "frame.fits"], "-i/--input"),
    ("gpu_extract.cli.extract", ["-o", "frame.fits", "--qa="], "--qa"),
    ("gpu_extract.cli.extract", ["-o", "frame.fits", "-t", ""], "-t/--test"),
    ("gpu_extract.cli.exposure", ["", "--simulate", "2", "-o", "frames"], "LIST"),
    ("gpu_psf.cli.psf", ["fit", "-i", "arc.fits", "", "-o", "psf.fits"], "-i/--input"),
])
def test_a_variable_that_is_not_set_is_no_value(module, words, option, capsys):
    """An empty name once counted as an absent option: with -i and -p empty a simulated frame was extracted."""
    assert f"argument {option}: its value is empty" in said_by(module, words, capsys)


def test_addresses_in_the_list_of_a_night(capsys, tmp_path):
    """Names in a list are relative to its folder, but an address does not become a file there."""
    (tmp_path / "list").write_text("s3://bucket/preproc-r0-1.fits psf.fits\n")
    for words in (["-i", "s3://bucket/preproc-*.fits", "-p", "psf.fits"], [str(tmp_path / "list")]):
        line = said_by("gpu_extract.cli.exposure", [*words, "-o", str(tmp_path / "out"), "--loglevel", "error"], capsys)
        assert "is an address (s3://), not a file" in line
    assert not (tmp_path / "out").exists()


def test_names_with_a_colon_are_no_addresses():
    for name in ("a:b.fits", "night/12:30/x.fits", "C:/x.fits", "psf:/", ""):
        check_local(name)


def test_exchanged_files_are_recognised(extract, files, tmp_path):
    said = extract("-i", files.psf, "-p", files.image).error
    assert f"{files.psf}: this is a PSF (GAUSS-HERMITE), not an image: -i is for the image, -p for the PSF" in said
    assert f"{files.image}: this is an image, not a PSF: " in extract("-p", files.image).error
    frame = tmp_path / "frame.fits"
    write_frame(frame, small_frame())
    assert f"{frame}: this is a frame, not an image: its spectra are already extracted" in extract("-i", frame).error
    for read, path, words in ((read_psf, frame, "this is a frame, not a PSF"),
                              (read_frame, files.image, "this is an image, not a frame"),
                              (read_frame, files.psf, "this is a PSF")):
        with pytest.raises(InputError, match=words):
            read(path)
    read_image(files.image)


@pytest.mark.parametrize(("module", "words", "named"), [
    ("gpu_extract.cli.compare", "a.fits b.fits --plot /no/such/x.png", "/no/such/x.png"),
    ("gpu_perf.cli.perf", "report a.json --html /no/such/x.html", "/no/such/x.html"),
    ("gpu_perf.cli.perf", "nsys a.sqlite --html /no/such/x.html", "/no/such/x.html"),
    ("gpu_perf.cli.sweep", "run out --no-plots --markdown /no/such/x.md", "/no/such/x.md"),
    ("gpu_perf.cli.perf", "talp a.json -o /no/such/x.json", "/no/such/x.json"),
    ("gpu_psf.cli.psf", "fit -i a.fits -p p.fits -o /no/such/x.fits", "/no/such/x.fits"),
    ("gpu_psf.cli.psf", "start --psf p.fits --flat a.fits -o /no/such/x.fits", "/no/such/x.fits"),
    ("gpu_psf.cli.psf", "preprocess -i a.fits --dark d.fits -o /no/such/x.fits", "/no/such/x.fits"),
    ("gpu_extract.cli.simulate", "-o x.txt", "x.txt"),
    ("gpu_extract.cli.simulate", "-o x.fits --truth-out t.fit", "t.fit")])
def test_outputs_are_looked_at_before_any_work(module, words, named, capsys, tmp_path, monkeypatch):
    """No input exists: the first message shows what is checked first."""
    monkeypatch.chdir(tmp_path)
    assert importlib.import_module(module).main(words.split()) in (2, 3)
    (line,) = capsys.readouterr().err.splitlines()
    assert f" error: {named}: " in line and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("folder", ["s3://bucket/out", "file/out"])
@pytest.mark.parametrize(("module", "words"), [
    ("gpu_perf.cli.sweep", "run {} --no-plots"), ("gpu_perf.cli.track", "page -o {}"),
    ("gpu_perf.cli.track", "asv --output {}"), ("gpu_perf.cli.track", "run --store {}/x.sqlite"),
    ("gpu_stress.cli.stress", "campaign {}"), ("gpu_stress.cli.stress", "report gone -o {}"),
    ("gpu_extract.cli.setup", "templates {}"), ("gpu_extract.cli.exposure", "-i a.fits -p p.fits -o {}")])
def test_folders_are_looked_at_before_any_work(module, words, folder, capsys, tmp_path, monkeypatch):
    """A folder named "s3:" was once made, and a file in the way was an internal error."""
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    assert importlib.import_module(module).main(words.format(folder).split()) in (2, 3)
    line, *more = capsys.readouterr().err.splitlines()
    assert not more
    assert ("is an address (s3://)" if folder.startswith("s3") else " file/out") in line and "internal" not in line
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(("module", "words"), [
    ("gpu_extract.cli.compare", "{} b.fits"),
    ("gpu_extract.cli.extract", "-o x.fits --preset {}"), ("gpu_perf.cli.perf", "report {}"),
    ("gpu_perf.cli.perf", "nsys {}"), ("gpu_perf.cli.perf", "proflog {}"), ("gpu_perf.cli.perf", "talp {}"),
    ("gpu_perf.cli.sweep", "report {} --no-plots"), ("gpu_perf.cli.track", "import {}"),
    ("gpu_perf.cli.track", "page --store {}"), ("gpu_stress.cli.stress", "report {}"),
    ("gpu_psf.cli.psf", "preprocess -i {} --dark d.fits -o x.fits"), ("gpu_psf.cli.psf", "start --psf {} -o x.fits"),
    ("gpu_psf.cli.psf", "fit -i a.fits -p {} -o x.fits")])
def test_addresses_are_no_inputs_of_any_command(module, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = said_by(module, words.format("https://host/a.fits").split(), capsys)
    assert "host/a.fits: is an address (https://), not a file: " in line


def test_a_sweep_is_not_begun_without_what_its_report_needs(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    line = said_by("gpu_perf.cli.sweep", ["run", "out", "--ranks", "1"], capsys)
    assert "need matplotlib" in line and list(tmp_path.iterdir()) == []


def test_lines_of_the_log_begin_with_the_time_if_asked_or_in_a_file(capsys):
    """On: every line; auto: unless the output is a terminal; off: never. Errors are unchanged."""
    def body(_: object) -> int:
        logging.getLogger("gpu_extract").info("one\ntwo")
        logging.getLogger("gpu_extract").warning("three")
        raise InputError("four")

    def lines(*words: str) -> list[str]:
        assert run_main(build_parser, body, ["a", "b", *words]) == 2
        return capsys.readouterr().err.splitlines()

    plain = ["one two", "warning: three", "gpu_compare: error: four"]
    assert lines("--log-times", "off") == plain
    for when in ("on", "auto"):
        timed = lines("--log-times", when)
        times = [re.fullmatch(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ) (.*)", line) for line in timed[:2]]
        assert [t and t[2] for t in times] == plain[:2] and timed[2] == plain[2]


def test_the_surroundings_say_whether_the_log_has_times(capsys, monkeypatch):
    monkeypatch.setenv("GPU_EXTRACT_LOG_TIMES", "no")
    assert "must be one of auto, on, off" in said_by("gpu_extract.cli.compare", ["a", "b"], capsys)
    monkeypatch.setenv("GPU_EXTRACT_LOG_TIMES", "")           # equivalent to unset
    assert "a: no such file" in said_by("gpu_extract.cli.compare", ["a", "b"], capsys)


def test_progress_on_two_ranks_counts_all_bundles(monkeypatch):
    """Two bundles on two ranks are one round: a frame of two was once logged as "bundle 1 of 1"."""
    monkeypatch.setattr(logging.getLogger("gpu_extract"), "level", logging.INFO)

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    def said(turns, bundles, ranks):
        progress = Progress(stream=Terminal())
        progress.expect(turns, bundles, ranks)
        for _ in range(turns):
            with progress.span("bundle"):
                pass
        return re.findall(r"\r([^,]+),", progress._stream.getvalue())

    assert said(1, 2, 2) == ["round 1 of 1 (2 bundles on 2 ranks)"]
    assert said(2, 2, 1) == ["bundle 1 of 2", "bundle 2 of 2"]


def test_a_bundle_that_was_interrupted_is_not_counted(caplog):
    caplog.set_level(logging.INFO, "gpu_extract")
    progress = Progress(stream=io.StringIO())
    progress.expect(2, 2, 1)
    with progress.span("bundle"):
        pass
    with pytest.raises(KeyboardInterrupt), progress.span("bundle"):
        raise KeyboardInterrupt
    assert [record.message.split(",")[0] for record in caplog.records] == ["bundle 1 of 2"]


def test_a_signal_while_a_kernel_returns_is_an_interruption():
    """numba continues after the handler's exception, and Python turns that into a SystemError."""
    def interrupt(*_):
        raise KeyboardInterrupt

    @njit
    def kernel(array):
        return array.sum(), array

    kernel(np.ones(3))
    found, before = set(), signal.signal(signal.SIGALRM, interrupt)
    try:
        for trial in range(1000):
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-4 + 1e-6 * (trial % 50))
                while True:
                    kernel(np.ones(3))
            except (KeyboardInterrupt, SystemError) as error:
                found.add(type(error))
                assert explain(error)[1] == ExitCode.START_AGAIN
            if len(found) == 2:
                break
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert explain(SystemError("of another cause"))[1] == ExitCode.INTERNAL


def test_tables_of_simulated_frames_have_no_unit_that_astropy_does_not_know(tmp_path):
    """FLUX_R was in "nanomaggy", which is no FITS unit: every reader of the table printed a warning."""
    table = fibermap_of(SimConfig(camera="tiny", seed=3), psf_model("tiny"))
    frame = small_frame()
    write_frame(tmp_path / "frame.fits", replace(frame, fibermap=replace(table, rows=table.rows[:len(frame.flux)])))
    with warnings.catch_warnings(record=True) as found, fits.open(tmp_path / "frame.fits") as hdus:
        warnings.simplefilter("always")
        for hdu in hdus:
            if isinstance(hdu, fits.BinTableHDU):
                assert len(Table.read(hdu)) > 0
        names = hdus["FIBERMAP"].columns.names
        assert hdus["FIBERMAP"].header.comments[f"TTYPE{1 + names.index('FLUX_R')}"] == "nanomaggies"
    assert [str(w.message) for w in found if "unit" in str(w.message).lower()] == []


def test_options_of_exspec_are_refused_by_name(extract):
    assert "use --bundlesize" in extract("-b", "25").error
    assert "along each fibre" in extract("-d").error
    assert "no preset 'x'" in extract("--gpu-specter", "--preset", "x").error


def test_programs_start_where_the_home_folder_may_not_be_searched():
    """As for a service account; astropy looks for settings there and ends with an error."""
    if "ASTROPY_CONFIG_DIR" not in inspect.getsource(pytest.importorskip("astropy.config.paths")):
        pytest.skip("this astropy takes no other folder for its settings")
    code = ("import os\n"
            "from gpu_extract.cli import common\n"
            "import astropy.config.paths\n"                     # while its files can be read
            "os.getuid() or os.setuid(65534)\n"
            "common.settings_elsewhere()\n"
            "print(astropy.config.paths.get_config_dir_path())\n")
    with tempfile.TemporaryDirectory() as shut:
        Path(shut).chmod(0)
        found = subprocess.run([sys.executable, "-c", code], env={**os.environ, "HOME": shut}, capture_output=True,
                               text=True, check=False)
        Path(shut).chmod(0o700)
    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize("settings", ["[io.fits]\nextension_name_case_sensitive = True\nenable_uint = False\n",
                                      "[io.fits\n= =\n"])
def test_astropys_settings_of_the_user_are_not_used(settings, small_frames, tmp_path):
    """With the first no HDU was found, and the second ended in an internal error."""
    (tmp_path / ".astropy" / "config").mkdir(parents=True)
    (tmp_path / ".astropy" / "config" / "astropy.cfg").write_text(settings)
    frame = str(small_frames / "a.fits")
    done = subprocess.run([sys.executable, BIN / "gpu_compare", frame, frame], capture_output=True, text=True,
                          env={**os.environ, "HOME": str(tmp_path)}, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_settings_of_matplotlib_that_it_refuses(small_frames, tmp_path):
    frame, picture = str(small_frames / "a.fits"), tmp_path / "picture.png"
    done = subprocess.run([sys.executable, BIN / "gpu_compare", frame, frame, "--plot", picture], capture_output=True,
                          text=True, env={**os.environ, "MPLBACKEND": "no-such"}, check=False, timeout=60)
    assert done.returncode == ExitCode.INPUT and not picture.exists() and len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("gpu_compare: error: matplotlib refuses the user's settings (Key backend: 'no-such'")


@pytest.mark.parametrize("settings", ["a: [", "- a", "1: 2"])
def test_settings_of_numba_that_it_refuses(settings: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """numba reads them from the current folder, and ended in an internal error."""
    yaml = pytest.importorskip("yaml")
    monkeypatch.chdir(tmp_path)
    file = tmp_path / ".numba_config.yaml"
    file.write_text(settings)
    with pytest.raises((yaml.YAMLError, AttributeError)) as found:
        reload_config()
    message, code = explain(found.value)
    assert message.startswith(f"numba refuses its settings in {file} (") and code == ExitCode.INPUT
    file.unlink()
    assert explain(found.value)[1] == ExitCode.INTERNAL


def test_lines_for_a_closed_standard_error_go_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python then has None in its place (`2>&-`); a run once made its frame and ended with exit code 4."""
    handlers, level = log.handlers[:], log.level
    monkeypatch.setattr(sys, "stderr", None)
    try:
        start_logging("info", "auto")
        assert not on_terminal()
        show_progress("1 of 2", last=False)
        log.info("done")
    finally:
        log.handlers[:] = handlers
        log.setLevel(level)


@pytest.mark.parametrize(("program", "number"), [
    ("gpu_extract", signal.SIGINT), ("gpu_compare", signal.SIGTERM), ("gpu_psf", signal.SIGINT),
    ("gpu_perf", signal.SIGUSR2), ("gpu_stress", signal.SIGHUP), ("gpu_simulate", signal.SIGUSR1),
    ("gpu_setup", signal.SIGXCPU), ("gpu_track", signal.SIGALRM), ("mps_wrapper", signal.SIGINT)])
def test_a_signal_while_a_program_loads(program, number, tmp_path):
    """In the first tenth of a second, Ctrl-C printed a traceback of Python's imports, and SIGTERM ended it without a
    word. One of several ranks speaks."""
    (tmp_path / "argparse.py").write_text(f"import os\nos.kill(os.getpid(), {int(number)})\n")      # is imported first
    command = [sys.executable, BIN / program, "--version"]
    for rank, lines in (("0", 1), ("1", 0)):
        environ = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
                   "PMI_RANK": rank}
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60,
                              preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))   # nohup would have it ignored
        assert (done.returncode, len(done.stderr.splitlines())) == (ExitCode.START_AGAIN, lines)
        assert done.stderr in ("", f"{program}: error: stopped on request before any work; start again\n")


def test_a_signal_to_a_program_without_handlers_of_its_own(tmp_path):
    """SIGTERM, as from scancel, ended gpu_simulate without a word, and left its temporary files."""
    begun = tmp_path / "begun"
    (tmp_path / "sitecustomize.py").write_text(
        "import os, threading, time\n"
        "def wait():\n"
        "    while 'gpu_extract.simulate' not in __import__('sys').modules: time.sleep(0.001)\n"
        f"    open({str(begun)!r}, 'w').close(); os.kill(os.getpid(), {int(signal.SIGTERM)})\n"
        "threading.Thread(target=wait, daemon=True).start()\n")
    environ = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run([sys.executable, BIN / "gpu_simulate", "--camera", "tiny", "-o", "x.fits"], cwd=tmp_path,
                          env=environ, capture_output=True, text=True, timeout=60)
    assert begun.exists() and done.returncode == ExitCode.START_AGAIN
    assert done.stderr.splitlines()[-1].startswith("gpu_simulate: error: interrupted; files under their final names")


def test_a_script_that_uses_the_programs_keeps_its_handlers(tmp_path):
    """The handlers of the start are those of a program, and not of whoever imports one."""
    script = tmp_path / "mine.py"
    script.write_text("import signal\nbefore = [signal.getsignal(n) for n in range(1, 32)]\n"
                      "import gpu_extract.cli.compare\n"
                      "assert before == [signal.getsignal(n) for n in range(1, 32)]\n")
    subprocess.run([sys.executable, script], check=True, timeout=60)
