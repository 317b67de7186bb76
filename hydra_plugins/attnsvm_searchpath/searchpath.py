"""Hydra looks for config files in the packages that plug-ins declare in their group `conf`."""

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin

from attnsvm.config.plugins import declared_modules


class PluginSearchPath(SearchPathPlugin):
    """Appends `pkg://MODULE` for each of them, after attnsvm's own files."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Append the packages."""
        for module in declared_modules("conf"):
            search_path.append(provider=module.partition(".")[0], path=f"pkg://{module}")
