"""The vector intrinsics against numpy, lane by lane."""
import numpy as np
import pytest
from numba import njit

from gpu_extract.vectors import simd

RNG = np.random.default_rng(11)


def vectors(n=3, scale=10.0):
    return RNG.normal(0, scale, (n, 4))


@njit
def two(name, out, a, b):
    x, y = simd.vread(simd.address(a, 0)), simd.vread(simd.address(b, 0))
    if name == 0:
        z = simd.vadd(x, y)
    elif name == 1:
        z = simd.vsub(x, y)
    elif name == 2:
        z = simd.vmul(x, y)
    elif name == 3:
        z = simd.vdiv(x, y)
    elif name == 4:
        z = simd.vmax(x, y)
    elif name == 5:
        z = simd.vless(x, y)
    else:
        z = simd.vsign(x, y)
    simd.vwrite(simd.address(out, 0), z)


@pytest.mark.parametrize(("name", "wanted"), list(enumerate([
    np.add, np.subtract, np.multiply, np.divide, np.maximum, lambda a, b: (a < b).astype(float), np.copysign])))
def test_operations_on_two_vectors_are_those_of_numpy(name, wanted):
    out = np.empty(4)
    for _ in range(20):
        a, b = vectors(2)
        b[0] = a[0]
        two(name, out, a, b)
        np.testing.assert_array_equal(out, wanted(a, b))


@njit
def fused(out, a, b, c):
    x, y, z = simd.vread(simd.address(a, 0)), simd.vread(simd.address(b, 0)), simd.vread(simd.address(c, 0))
    simd.vwrite(simd.address(out, 0), simd.vfma(x, y, z))


def test_fma_rounds_once():
    """1 + 2^-60 - 1: nothing of the product's tail is lost."""
    out, a = np.empty(4), np.full(4, 1.0 + 2.0**-30)
    fused(out, a, np.full(4, 1.0 - 2.0**-30), np.full(4, -1.0))
    np.testing.assert_array_equal(out, -(2.0**-60))


@njit
def sums(out, a, b, c, d):
    first, second = simd.vread(simd.address(a, 0)), simd.vread(simd.address(b, 0))
    third, fourth = simd.vread(simd.address(c, 0)), simd.vread(simd.address(d, 0))
    simd.vwrite(simd.address(out, 0), simd.vsums(first, second, third, fourth))
    return simd.vsum(first)


def test_sums_run_in_the_order_written():
    out, four = np.empty(4), vectors(4)
    one = sums(out, *four)
    np.testing.assert_array_equal(out, (four[:, 0] + four[:, 1]) + (four[:, 2] + four[:, 3]))
    assert one == (four[0, 0] + four[0, 2]) + (four[0, 1] + four[0, 3])


@njit
def moved(double, single, scalars, source):
    simd.vwrite(simd.address(double, 2), simd.vread(simd.address(source, 1)))
    simd.vwrite_single(simd.address(single, 4), simd.vspread(simd.address(source, 3)))
    simd.write(simd.address(double, 0), simd.number(simd.address(source, 2)))
    return simd.integer(simd.address(scalars, 1))


def test_reads_and_writes_at_any_address():
    """Unaligned reads and writes of four numbers; one in all lanes, single precision, one number, one integer."""
    source = np.arange(1.0, 8.0) / 3
    double, single = np.zeros(8), np.zeros(12, dtype=np.float32)
    first = -(single.ctypes.data // 4) % 4        # single precision is written on whole vectors
    assert moved(double, single[first:], np.array([3, 5, 7]), source) == 5
    np.testing.assert_array_equal(double, [source[2], 0, *source[1:5], 0, 0])
    np.testing.assert_array_equal(single[first:first + 8], [0] * 4 + [np.float32(source[3])] * 4)


@njit
def eight(out, a, y):
    first, second = simd.address(a, 0), simd.address(out, 0)
    wide, line = simd.vread8(first), 8 * 8
    simd.vwrite(second, simd.vfma(wide, wide, simd.vset8(y)))
    simd.vwrite(second + line, simd.vfold(wide))
    simd.vwrite(second + 2 * line, simd.vswap(wide))
    simd.vwrite(second + 3 * line, simd.vturn2(wide))
    simd.vwrite(second + 7 * line, simd.vturn1(wide))
    simd.vwrite(second + 8 * line, simd.vturn3(wide))
    simd.vwrite(second + 4 * line, simd.vlow(simd.vread(first), simd.vread(first + 4 * 8)))
    simd.vwrite(second + 5 * line, simd.vhigh(simd.vread(first), simd.vread(first + 4 * 8)))
    simd.vwrite(second + 9 * line, simd.vpairs(simd.vread(first), simd.vread(first + 4 * 8)))
    simd.vwrite(second + 6 * line, simd.vpick(simd.vset(1.0), simd.vset(2.0), simd.vset(3.0), simd.vread(first)))


def test_eight_lanes_are_two_times_four():
    a, out = RNG.normal(0, 3, 8), np.zeros((10, 8))
    eight(out, a, -0.75)
    np.testing.assert_allclose(out[0], a * a - 0.75, rtol=1e-14)
    np.testing.assert_array_equal(out[1, :4], a[:4] + a[4:])
    np.testing.assert_array_equal(out[2], a.reshape(4, 2)[:, ::-1].ravel())
    for row, n in ((7, 1), (3, 2), (8, 3)):
        np.testing.assert_array_equal(out[row], np.roll(a.reshape(2, 4), -n, axis=1).ravel())
    np.testing.assert_array_equal(out[4, :4], a[[0, 1, 4, 5]])
    np.testing.assert_array_equal(out[5, :4], a[[2, 3, 6, 7]])
    np.testing.assert_array_equal(out[6, :4], [1.0, 2.0, 3.0, a[3]])
    np.testing.assert_array_equal(out[9, :4], a[[0, 4, 2, 6]])


@njit
def sixteen(out, a, x):
    first, second = simd.address(a, 0), simd.address(out, 0)
    wide, line = simd.vread16(first), 16 * 8
    simd.vwrite(second, simd.vmul(wide, simd.vset16(x)))
    simd.vwrite(second + line, simd.vpixels(first + 3 * 8))
    simd.vwrite(second + 2 * line, simd.vfours(simd.vread(first + 8)))
    simd.vwrite(second + 3 * line, simd.vfold(wide))
    simd.vwrite(second + 4 * line, simd.vhalf(wide))
    simd.vwrite(second + 5 * line, simd.vjoin(wide, simd.vpixels8(first + 3 * 8)))


def test_sixteen_lanes_are_four_times_four():
    a, out = RNG.normal(0, 3, 16), np.zeros((6, 16))
    sixteen(out, a, 2.5)
    np.testing.assert_array_equal(out[0], 2.5 * a)
    np.testing.assert_array_equal(out[1], np.repeat(a[3:7], 4))
    np.testing.assert_array_equal(out[2], np.tile(a[1:5], 4))
    quarters = a.reshape(4, 4)
    np.testing.assert_array_equal(out[3, :4], (quarters[0] + quarters[2]) + (quarters[1] + quarters[3]))
    np.testing.assert_array_equal(out[4], [*a[:8], *[0] * 8])
    np.testing.assert_array_equal(out[5], [*[a[3]] * 4, *[a[4]] * 4, *a[8:]])


@njit
def past(single, source):
    simd.vwrite_single(simd.address(single, 8), simd.vread16(simd.address(source, 0)))


def test_sixteen_in_single_precision_need_room_for_eight():
    """An address that is a multiple of 32 bytes, and not of 64, suffices."""
    source, single = RNG.normal(0, 3, 16), np.zeros(56, dtype=np.float32)
    first = -(single.ctypes.data // 4) % 16
    past(single[first:], source)
    np.testing.assert_array_equal(single[first:first + 32], [*[0] * 8, *np.float32(source), *[0] * 8])
