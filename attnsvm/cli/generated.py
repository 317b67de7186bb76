"""The files that are written from the declarations of options and columns.

`python -m attnsvm.cli.generated` writes them; a test compares them.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from inspect import formatannotation
from pathlib import Path

from attnsvm.cli.help import option_text, options_of
from attnsvm.config.run import ALL_GROUPS, GROUPS, SECTIONS
from attnsvm.config.sources import conf_folder

STUB = '''"""The keyword options of `attnsvm.train` and `attnsvm.sample`, for type checkers.

Written by `python -m attnsvm.cli.generated` from the schemas, without the fields of plug-ins.
"""

from collections.abc import Sequence
from typing import TypedDict
'''


OPTIONS = """# Options

Every option of every group, with its fields, their meaning, range and default: the files in
`conf/`, which `python -m attnsvm.cli.generated` writes from the schemas. `attnsvm --help
optimizer=adam` prints one of them.
"""


def options_page() -> str:
    """Return the page of options of the site."""
    page = [OPTIONS]
    for group in (*ALL_GROUPS, *SECTIONS):
        page += [f"## {group}", ""]
        for name in _names(group):
            include = f"```{{literalinclude}} ../conf/{group}/{name}.yaml"
            page += [f"### `{group}={name}`", "", include, ":language: yaml", "```", ""]
    return "\n".join(page)


def generated() -> Iterator[tuple[Path, str]]:
    """Yield the files of a checkout that are written from declarations, with their text."""
    conf, root = conf_folder(), Path(__file__).parents[2]
    for group in (*ALL_GROUPS, *SECTIONS):
        for name in _names(group):
            yield conf / group / f"{name}.yaml", option_text(group, name)
    types = [
        _typed("OptimizerOptions", "Fields of the optimizers", "optimizer"),
        _typed("SampleOptions", "Fields of data, heads and models", "data", "head", "model"),
    ]
    yield root / "attnsvm/config/options.pyi", STUB + "".join(types).replace("list[", "Sequence[")


def _names(group: str) -> Iterable[str]:
    return getattr(ALL_GROUPS.get(group), "own", options_of(group))


def _typed(name: str, about: str, *groups: str) -> str:
    """Return the declaration of a dictionary with the fields of all options of groups."""
    schemas = (schema for group in groups for schema in GROUPS[group].own.values())
    kinds = {f.name: f.type for schema in schemas for f in dataclasses.fields(schema) if f.metadata}
    kinds.pop("init", None)  # an argument of its own
    lines = [f"    {field}: {formatannotation(kind)}" for field, kind in kinds.items()]
    about = f'    """{about}; those of an option: `attnsvm --help GROUP=OPTION`."""\n'
    return "\n".join([f"\nclass {name}(TypedDict, total=False):", about, *lines, ""])


if __name__ == "__main__":
    for path, text in generated():
        path.write_text(text)
