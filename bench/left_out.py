"""What a bundle's safeguards cost: each is left out in turn, and the extraction compared with the whole.

usage: left_out.py [--image FILE --psf FILE] [--repeat 17] [--smallest]

The bundle of bundle.py (25 fibres, 2326 bins, one thread, warm). Milliseconds of CPU by turns with the whole, and the
median of the differences of turns next to each other. Results without a safeguard may be wrong: they are thrown away.
"""
import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import process_time
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
import bundle as bench
from parsing import parser_of

from gpu_extract import bundle, run
from gpu_extract.decorrelate import banded
from gpu_extract.decorrelate.limits import Limits


@contextmanager
def _limits(**given: float) -> Iterator[None]:
    """Another limit of what is neglected in S."""
    quick = partial(banded.decorrelate, options=banded.Options(limits=Limits(**given)))
    with patch.object(bundle.banded, "decorrelate", quick):
        yield


LEFT_OUT = {
    "the exact correction of the flux": partial(_limits, shift=1.0, uneven_shift=1.0),
    "a wider band where the first one cuts off too much": partial(_limits, tail=1e-3),
    "what masks hide at the ends of the range, and a longer pad": partial(patch.object, run, "beside_masks",
                                                                          lambda decay, *_: decay),
    "whether image and PSF belong together": partial(patch.object, run, "_compared", lambda *_, **__: ()),
}


def main() -> int:
    """Measure and print."""
    parser = parser_of(__doc__, image=None, psf=None, repeat=17)
    args = parser.parse_args()
    args.core = "auto"
    image, psf, config = bench.problem(args)

    def spent() -> float:
        begin = process_time()
        run.extract(image, psf, config)
        return 1e3 * (process_time() - begin)

    wholes: list[float] = []
    more: dict[str, list[float]] = {name: [] for name in LEFT_OUT}
    spent()
    for turn in range(2 if args.smallest else args.repeat):
        for name, without in LEFT_OUT.items():
            whole = spent()
            with without():
                less = spent()
            if turn > 0:            # the first finds kernels that are not yet loaded
                wholes.append(whole)
                more[name].append(whole - less)
    print(f"the whole: {statistics.median(wholes):.1f} ms")
    for name, costs in more.items():
        print(f"{statistics.median(costs):6.2f} ms  {name}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
