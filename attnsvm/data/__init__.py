"""The sources of problem instances; option `data=NAME`."""

from attnsvm.data.base import Data, Drawn, Seeded
from attnsvm.data.classes import Classes, Contexts
from attnsvm.data.digits import Digits
from attnsvm.data.file import File
from attnsvm.data.planted import Planted
from attnsvm.data.pretrained.source import Pretrained
from attnsvm.data.sample import sample
from attnsvm.data.sphere import Orthonormal, PathsFar, PathsNear, Prompt, Sphere, SphereInSpan
from attnsvm.data.text import Text
from attnsvm.data.token_graph import TokenGraph
