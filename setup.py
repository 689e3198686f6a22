"""Where a wheel has Stoker's packages: all but the client below `stoker/_packages`.

`import stoker` is for everyone, but `runner` or `trainer` at the top level of site-packages would be in the way of others. The
processes of Stoker put that folder on their search path (`stoker/packages.py`). The pages and files that messages name lie
there too, beside the packages as in the tree. An editable installation has the layout of the tree.
"""

from pathlib import Path
from typing import Any

from setuptools import Distribution, find_packages, setup
from setuptools.command.editable_wheel import editable_wheel

ROOT = Path(__file__).parent
CLIENT = ["stoker", "stoker.*"]
OWN = ["runner", "runner.*", "healthchecks", "healthchecks.*", "trainer", "trainer.*", "runbooks"]
BUNDLED = "stoker._packages"
# Folders of pages and files, which are no packages of Python.
PAGES = {
    "docs": ["*.md"],
    "docs.design": ["*.md"],
    "deploy": ["*"],
    "deploy.compose": ["*"],
    "deploy.grafana": ["*"],
}
DATA = {
    "runner": ["py.typed"],
    "runner.rootcause": ["*.json"],
    "runner.rootcause.catalogues": ["*.jsonl"],
    "runner.serve.web": ["static/*.*", "static/uplot/*"],
    "runbooks": ["*.md"],
    "trainer.recipes": ["*.yaml", "*.toml", "*.json"],
}


def tree_layout() -> dict[str, Any]:
    """Return the packages as they lie in the tree."""
    return {
        "packages": find_packages(str(ROOT), include=[*CLIENT, *OWN]),
        "package_dir": {},
        "package_data": {"stoker": ["py.typed"], **DATA},
    }


def wheel_layout() -> dict[str, Any]:
    """Return the packages as a wheel has them."""
    own = [*find_packages(str(ROOT), include=OWN), *PAGES]
    return {
        "packages": [
            *find_packages(str(ROOT), include=CLIENT),
            *(f"{BUNDLED}.{name}" for name in own),
        ],
        "package_dir": {f"{BUNDLED}.{name}": name.replace(".", "/") for name in own},
        "package_data": {
            "stoker": ["py.typed"],
            **{f"{BUNDLED}.{name}": patterns for name, patterns in {**DATA, **PAGES}.items()},
        },
    }


class EditableInTree(editable_wheel):
    """Makes an editable installation find the packages where they lie in the tree."""

    distribution: Distribution

    def finalize_options(self) -> None:
        """Give the distribution the layout of the tree."""
        for name, value in tree_layout().items():
            setattr(self.distribution, name, value)
        super().finalize_options()


setup(cmdclass={"editable_wheel": EditableInTree}, **wheel_layout())
