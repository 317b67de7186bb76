"""What the documentation keeps of a sweep: the tables of its figures.

`docs/tables/NAME` holds a Parquet file for each table and `about.json`: the axes, what the figures
leave out, and a digest of the records. Every figure of the site is drawn from these.

    python -m docs.gallery NAME ...     of these experiments, from their records in multirun/NAME
"""

import dataclasses
import io
import json
import sys
from hashlib import sha256
from pathlib import Path

import pandas as pd
from PIL import Image

from attnsvm.record import RUN_FILE, write_atomically
from attnsvm.sweeps import aggregate, style
from attnsvm.sweeps.cells import CellAxes
from attnsvm.sweeps.figures import Drawing, figure_module
from attnsvm.sweeps.loaded import LoadedSweep

DOCS = Path(__file__).parent
ABOUT = "about.json"
WIDTH_PX = 1500
COLOURS = (128, 64, 32)
SIZE_LIMIT_BYTES = 200_000
"""Largest width and size of a small copy, and the numbers of colours that are tried for it."""


def write_tables(frames: LoadedSweep, folder: Path) -> None:
    """Write the tables of a sweep's figures into `folder`, instead of those that are there."""
    tables = figure_module(frames.name).tables(frames)
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        content = table.to_parquet(index=False, compression="zstd")
        write_atomically(folder / f"{name}.parquet", content)
    for path in folder.glob("*.parquet"):
        if path.stem not in tables:
            path.unlink()
    done, records = sorted(frames.finished["run"]), sha256()
    for run in done:
        records.update((frames.folders[run] / RUN_FILE).read_bytes())
    about = {
        "sweep": frames.name,
        "runs": len(done),
        "instances": len(frames.rows),
        "records": records.hexdigest(),
        "remarks": [frames.not_shown],
        "axes": dataclasses.asdict(frames.cells),
    }
    write_atomically(folder / ABOUT, f"{json.dumps(about, indent=1, sort_keys=True)}\n".encode())


def drawings(folder: Path) -> dict[str, Drawing]:
    """Return the figures of the sweep whose tables are in `folder`, by name.

    They are to be drawn in the style of `style.paper`. OSError: the folder lacks a file.
    """
    about = json.loads((folder / ABOUT).read_text())
    axes = about["axes"]
    cells = CellAxes(**axes | {key: tuple(axes[key]) for key in ("names", "of_rows")})
    tables = {path.stem: pd.read_parquet(path) for path in sorted(folder.glob("*.parquet"))}
    drawn = figure_module(about["sweep"]).draw(tables, cells, about["remarks"])
    return {drawing.name: drawing for drawing in drawn}


def draw(folder: Path, name: str) -> bytes:
    """Return a small PNG of the figure `name` of the sweep whose tables are in `folder`.

    OSError: as that of `drawings`; KeyError: the sweep has no figure of that name; ValueError: as
    that of `small_png`.
    """
    with style.paper():
        return small_png(style.png(drawings(folder)[name].figure))


def small_png(picture: bytes) -> bytes:
    """Return a PNG at most `WIDTH_PX` wide, with as many of `COLOURS` as the size limit allows.

    ValueError: it exceeds `SIZE_LIMIT_BYTES` even with the fewest colours.
    """
    with Image.open(io.BytesIO(picture)) as image:
        scale = min(1.0, WIDTH_PX / image.width)
        size = round(image.width * scale), round(image.height * scale)
        resized = image.convert("RGB").resize(size, Image.Resampling.LANCZOS)
    for colours in COLOURS:
        stream = io.BytesIO()
        # Median cut, Pillow's default, would merge the colours of thin curves.
        reduced = resized.quantize(colours, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
        reduced.save(stream, "PNG", optimize=True)
        if len(content := stream.getvalue()) <= SIZE_LIMIT_BYTES:
            return content
    raise ValueError(f"a small copy has {len(content)} bytes; must be <= {SIZE_LIMIT_BYTES}")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        write_tables(aggregate.read_sweep(Path("multirun") / name), DOCS / "tables" / name)
