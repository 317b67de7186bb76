"""The sources of problem instances; option `data=NAME` is the module of that name."""

from attnsvm.data.base import Data, Drawn
from attnsvm.data.digits import Digits
from attnsvm.data.file import File
from attnsvm.data.orthonormal import Orthonormal
from attnsvm.data.paths_far import PathsFar
from attnsvm.data.paths_near import PathsNear
from attnsvm.data.planted import Planted
from attnsvm.data.pretrained.source import Pretrained
from attnsvm.data.prompt import Prompt
from attnsvm.data.sample import sample
from attnsvm.data.seeded import Seeded
from attnsvm.data.sphere import Sphere
from attnsvm.data.sphere_in_span import SphereInSpan

__all__ = [
    "Data",
    "Digits",
    "Drawn",
    "File",
    "Orthonormal",
    "PathsFar",
    "PathsNear",
    "Planted",
    "Pretrained",
    "Prompt",
    "Seeded",
    "Sphere",
    "SphereInSpan",
    "sample",
]
