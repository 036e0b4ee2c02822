"""A time line of each rank, as SVG with a title on every bar, without a script."""
from collections.abc import Iterator
from html import escape

from gpu_extract.perf.record import Rank, Run, is_communication

COLOURS = ("#4477aa", "#66ccee", "#228833", "#ccbb44", "#ee6677", "#aa3377", "#88ccaa", "#997700", "#bb5566", "#004488",
           "#ee8866", "#bbcc33", "#332288", "#aaaa00", "#cc3311", "#009988", "#ffaabb", "#6699cc", "#994455", "#44bb99")
WAIT = "#bbbbbb"
WIDTH, ROW, LEFT, MOST_RANKS, FEWEST = 1080, 15, 70, 32, 0.0004     # FEWEST: bars shorter than this share are left out


def timeline(run: Run) -> str:
    """The SVG: a lane for each rank (the first 32), its stages nested downwards, communication in grey."""
    ranks = run.ranks[:MOST_RANKS]
    zero = min(r.epoch - r.start_up for r in ranks)
    total = max(r.epoch + r.elapsed for r in ranks) - zero
    names = list(dict.fromkeys(s.name for r in ranks for s in r.spans if not is_communication(s)))
    deep = 1 + max((s.depth for r in ranks for s in r.spans if not is_communication(s)), default=0)
    lane = ROW * deep + 8
    height = lane * len(ranks) + 24
    parts = [f'<svg class="timeline" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="what each rank did when">']
    for number, rank in enumerate(ranks):
        parts.append(f'<text x="0" y="{number * lane + 12}">rank {rank.rank}</text>')
        parts += _bars(rank, names, (number * lane, number * lane + ROW * deep), rank.epoch - zero, total)
    parts += [f'<text x="{LEFT + (WIDTH - LEFT) * k / 5:.0f}" y="{height - 4}" text-anchor="'
              f'{("start", "end")[k == 5]}">{total * k / 5:.2f} s</text>'
              for k in range(6)]
    colours = "".join(f'<span><i style="background:{_colour(names, n)}"></i>{escape(n)}</span>' for n in names)
    legend = f'<p class="legend">{colours}<span><i style="background:{WAIT}"></i>communication</span></p>'
    return "".join(parts) + "</svg>" + legend


def _bars(rank: Rank, names: list[str], tops: tuple[int, int], begin: float, total: float) -> Iterator[str]:
    """The bars of a rank; tops: of its stages, and of its device's work."""
    top, below = tops
    if rank.start_up:
        yield _bar(begin - rank.start_up, rank.start_up, total, (top, ROW), "#dddddd", "start up")
    for span in rank.spans:
        if span.seconds < FEWEST * total:
            continue
        colour = WAIT if is_communication(span) else _colour(names, span.name)
        yield _bar(begin + span.start, span.seconds, total, (top + ROW * span.depth, ROW - 2), colour, span.name)
    for name, start, seconds in rank.device["spans"] if rank.device else ():
        if seconds >= FEWEST * total:
            yield _bar(begin + start, seconds, total, (below, 6), "#000000", f"GPU: {name}")


def _bar(start: float, seconds: float, total: float, place: tuple[int, int], colour: str, name: str) -> str:
    scale = (WIDTH - LEFT) / total
    y, height = place
    return (f'<rect x="{LEFT + start * scale:.2f}" y="{y}" width="{max(seconds * scale, 0.4):.2f}" height="{height}" '
            f'fill="{colour}"><title>{escape(name)}: {seconds:.4f} s from {start:.4f} s on</title></rect>')


def _colour(names: list[str], name: str) -> str:
    return COLOURS[names.index(name) % len(COLOURS)]
