"""A plug-in package with an option, written to a folder and found there as if it was installed."""

from pathlib import Path

CONFIG = '''
from dataclasses import dataclass
from typing import Annotated

from attnsvm.config import HeadConfig, Range, option


@dataclass
class CubicConfig(HeadConfig):
    """h(o) = (v^T o)^power."""

    _target_: str = "cubic_heads.head.Cubic"
    power: Annotated[int, Range(1, 9), "exponent, odd"] = 3
'''
HEAD = """
from attnsvm.head import Linear


class Cubic(Linear):
    def __init__(self, power=3):
        super().__init__()
        self.power = power

    def value(self, o, parameters):
        return super().value(o, parameters) ** self.power

    def gradient(self, o, parameters):
        slope = self.power * super().value(o, parameters) ** (self.power - 1)
        return slope.unsqueeze(-1) * super().gradient(o, parameters)

    def features(self, X, parameters):
        return None
"""
SCHEMA = "cubic_heads.config:CubicConfig"
DECLARED = f'ATTNSVM = {{"head": {{"cubic": "{SCHEMA}"}}}}\n'


def write_package(place: Path, *, declared: str = DECLARED, config: str = CONFIG) -> Path:
    """Write the package `cubic_heads` below `place`."""
    package = place / "cubic_heads"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(declared)
    (package / "config.py").write_text(config)
    (package / "head.py").write_text(HEAD)
    return place


def write_file(place: Path) -> Path:
    """Write the same plug-in as one file, `cubic_heads.py`, in the folder `place`."""
    place.mkdir(parents=True, exist_ok=True)
    declared, config = DECLARED.replace(".config", ""), CONFIG.replace(".head", "")
    (place / "cubic_heads.py").write_text(declared + config + HEAD)
    return place


def write_entry_points(place: Path, *points: str, dist: str = "cubic-heads") -> Path:
    """Declare entry points, each `group: name = module:Class`, as an installed package does."""
    info = place / f"{dist.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: 1.0\n")
    parts = [point.partition(": ") for point in points]
    sections = [f"[attnsvm.{group}]\n{entry}\n" for group, _, entry in parts]
    (info / "entry_points.txt").write_text("\n".join(sections))
    return place


def installed(place: Path) -> Path:
    """Write the package with its entry point."""
    return write_entry_points(write_package(place, declared=""), f"head: cubic = {SCHEMA}")
