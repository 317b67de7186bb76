"""`python -m sweeps.gallery`: small copies of the experiments' figures, for the documentation."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from attnsvm.storage import write_atomically
from sweeps.overview import EXPERIMENTS

WIDTH_PX = 1500
COLOURS = (128, 64, 32)
SIZE_LIMIT_BYTES = 150_000


def small_png(picture: bytes) -> bytes:
    """Return a PNG of at most `WIDTH_PX` in as many of `COLOURS` as the size limit allows.

    Raises
    ------
    ValueError
        If it is larger than `SIZE_LIMIT_BYTES` with the fewest as well.
    """
    with Image.open(io.BytesIO(picture)) as image:
        scale = min(1.0, WIDTH_PX / image.width)
        size = round(image.width * scale), round(image.height * scale)
        resized = image.convert("RGB").resize(size, Image.Resampling.LANCZOS)
    for colours in COLOURS:
        stream = io.BytesIO()
        resized.quantize(colours, dither=Image.Dither.NONE).save(stream, "PNG", optimize=True)
        if len(content := stream.getvalue()) <= SIZE_LIMIT_BYTES:
            return content
    raise ValueError(f"a copy has {len(content)} bytes; allowed is <= {SIZE_LIMIT_BYTES}")


def write_gallery(runs: Path, target: Path) -> list[str]:
    """Write `target`/NAME.png for the figure of that name of every experiment below `runs`.

    Returns
    -------
    list of str
        The experiments that have no figure there.
    """
    target.mkdir(parents=True, exist_ok=True)
    missing = []
    for name in EXPERIMENTS:
        figure = runs / name / "figures" / f"{name}.png"
        if figure.exists():
            write_atomically(target / figure.name, small_png(figure.read_bytes()))
        else:
            missing.append(name)
    return missing


def main(argv: Sequence[str] | None = None) -> int:
    """Write the copies; 0 if every experiment has one, 1 if not."""
    parser = argparse.ArgumentParser(prog="python -m sweeps.gallery", description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("multirun"), help="where runs lie")
    parser.add_argument("--target", type=Path, default=Path("docs/figures"), help="where to")
    chosen = parser.parse_args(argv)
    missing = write_gallery(chosen.runs, chosen.target)
    for name in missing:
        sys.stderr.write(f"{name}: no figure on disk; attnsvm sweep={name} draws it\n")
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main())
