"""The table and the chart of docs/speed.md, from what `make bench` has measured.

python -m docs.speed        writes the table into the page, and its numbers into the README
"""

import re
from pathlib import Path

import pandas as pd
import seaborn as sns

from attnsvm.record import write_atomically
from attnsvm.sweeps import style

DOCS = Path(__file__).parent
PAGE, README, MEASURED = DOCS / "speed.md", DOCS.parent / "README.md", DOCS / "tables/speed.csv"
TABLE = re.compile(r"(<!-- table: .*? -->\n\n).*?(\n\n<!-- end of the table -->)", re.DOTALL)
HEAD = "| work | ours | other program | times ours | error |\n|---|---|---|---|---|"
UNITS = {"s": 1e6, "ms": 1e3, "µs": 1.0}


def measured() -> tuple[str, pd.DataFrame]:
    """Return the machine, and a row for each program and shape, ours and others."""
    machine, *_ = MEASURED.read_text().partition("\n")
    return machine.removeprefix("# "), pd.read_csv(MEASURED, skiprows=1)


def span(values: "pd.Series[float]", unit: float = 1.0) -> str:
    """Return a number, or the least and the largest, with two digits."""
    least, most = (f"{float(f'{x / unit:.2g}'):g}" for x in (values.min(), values.max()))
    return least if least == most else f"{least} to {most}"


def table() -> str:
    """Return the machine, and a row for each work and program other than ours."""
    machine, rows = measured()
    lines = [f"{machine}.\n\n{HEAD}"]
    for work, programs in rows.groupby("work", sort=False):
        ours = programs[programs["program"] == "ours"]["us"]
        unit = next(name for name, size in UNITS.items() if ours.median() >= size or size == 1)
        cell = f"{span(ours, UNITS[unit])} {unit}"
        others = programs[programs["program"] != "ours"]
        for name, other in others.groupby("program", sort=False):
            error = other["error"].max()
            cells = work, cell, name, span(other["ratio"]), "" if pd.isna(error) else f"{error:.0e}"
            lines.append(f"| {' | '.join(cells)} |")
        if others.empty:
            lines.append(f"| {work} | {cell} | | | |")
    return "\n".join(lines)


def page() -> str:
    """Return the text of the page with the table as measured."""
    return TABLE.sub(lambda match: f"{match[1]}{table()}{match[2]}", PAGE.read_text())


def readme() -> str:
    """Return the text of the README with the times of an SVM as measured."""
    rows = measured()[1]
    ours = rows[(rows["work"] == "Att-SVM, frobenius") & (rows["program"] == "ours")]["us"] / 1000
    words = f"takes {ours.min():.2f} to {ours.max():.2f} ms"
    return re.sub(r"takes [\d.]+ to [\d.]+ ms", words, README.read_text())


def chart() -> bytes:
    """Return a PNG: times of other programs over ours, a mark for each shape."""
    rows = measured()[1]
    rows = rows[~rows["program"].str.startswith("ours")]
    rows = rows.assign(program=rows["program"].str.extract(r"(\w+)")[0])
    with style.paper():
        fig = style.figure(style.PAGE, 0.6 + 0.17 * rows["work"].nunique())
        ax = fig.subplots()
        sns.stripplot(
            rows,
            x="ratio",
            y="work",
            hue="program",
            ax=ax,
            jitter=False,
            alpha=0.7,
            size=4,
            palette=style.colours(rows["program"].unique()),
        )
        ax.axvline(1, color=style.INK)
        ax.set(xscale="log", xlabel="time over ours, for the same work", ylabel="")
        sns.move_legend(ax, "center left", bbox_to_anchor=(1, 0.5), title="", frameon=False)
        return style.png(fig)


if __name__ == "__main__":
    write_atomically(PAGE, page().encode())
    write_atomically(README, readme().encode())
