"""Modules of the name ``azureml…`` for this process, made of the classes of :mod:`launch.azureml`.

A class that Ranklift lacks can be imported from them; its use raises
:class:`~launch.azureml.exceptions.NotSupported`. Nothing is installed.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from functools import cache, partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any

from launch.azureml.exceptions import AzureMLException, NotSupported
from launch.azureml.missing import MISSING, SERVICE, SWEEP, reason, stand_in
from launch.azureml.notices import report

__all__ = ["serve_azureml"]

_HERE = "launch.azureml"
_OURS = (
    *(_HERE, f"{_HERE}.runconfig", f"{_HERE}.compute", f"{_HERE}.dataset", f"{_HERE}.environment"),
    *(f"{_HERE}.exceptions", f"{_HERE}.run", f"{_HERE}.scripts.client_classes"),
)
"""Modules with classes that scripts can import, the first with a name counts."""
_FIRST = {"azureml.core.runconfig": f"{_HERE}.runconfig", "azureml.core.compute": f"{_HERE}.compute"}
"""Modules whose own names come before those of all others."""
_STEPS = "submit one run after the other, each followed by run.wait_for_completion()"
_MODELS = 'a model is a file that the run wrote: run.download_files("outputs") copies it here'
_DATA = "put the files into storage once with `fab data.put`, and give Dataset.File.from_files their place"
_LACKING = {
    "azureml.core.image": _MODELS,
    "azureml.core.model": _MODELS,
    "azureml.core.webservice": _MODELS,
    "azureml.data": _DATA,
    "azureml.dataprep": _DATA,
    "azureml.opendatasets": _DATA,
    "azureml.pipeline": _STEPS,
    "azureml.pipeline.core": _STEPS,
    "azureml.pipeline.steps": _STEPS,
    "azureml.train": "use ScriptRunConfig",
    "azureml.train.automl": SWEEP,
    "azureml.train.dnn": "use ScriptRunConfig with the framework's configuration",
    "azureml.train.estimator": "use ScriptRunConfig",
    "azureml.train.hyperdrive": SWEEP,
    "azureml.train.sklearn": "use ScriptRunConfig",
    "azureml.widgets": "see `fab top` and `fab logs -f`",
}
"""What to use in place of a module's classes; an inner module's counts first."""
_CORE = (
    "authentication compute compute_target conda_dependencies container_registry databricks dataset "
    "datastore environment experiment image keyvault linked_service model private_endpoint profile "
    "resource_configuration run runconfig script_run script_run_config util webservice workspace"
)
_MODULES = {*_LACKING, *(f"azureml.core.{name}" for name in _CORE.split())}
_PACKAGES = {
    *(
        "accel",
        "automl",
        "contrib",
        "core",
        "data",
        "datadrift",
        "dataprep",
        "exceptions",
        "explain",
        "history",
    ),
    *(
        "interpret",
        "mlflow",
        "monitoring",
        "opendatasets",
        "pipeline",
        "responsibleai",
        "studio",
        "telemetry",
    ),
    *("tensorboard", "train", "train_restclients_hyperdrive", "widgets"),
}


class _Finder(MetaPathFinder, Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        first, _, rest = fullname.partition(".")
        if first != "azureml" or (rest and rest.partition(".")[0] not in _PACKAGES):
            return None
        return ModuleSpec(fullname, self, origin=_HERE, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__getattr__"] = partial(_lookup, module.__name__)


def serve_azureml() -> None:
    """Have every later import of ``azureml`` in this process answered by Ranklift's classes.

    A notice says so where azureml-core is installed.
    """
    try:
        installed = version("azureml-core")
    except PackageNotFoundError:
        pass
    else:
        report(
            [f"azureml-core {installed} is installed here and not used: Ranklift's classes take its place"]
        )
    for name in [name for name in sys.modules if name.partition(".")[0] == "azureml"]:
        del sys.modules[name]
    sys.meta_path.insert(0, _Finder())


def _lookup(module: str, name: str) -> Any:
    """Return what a script imports as ``name`` from ``module``. Raise AttributeError for private names."""
    if name == "__all__":
        return _all(module)
    if f"{module}.{name}" in _MODULES or (module == "azureml" and name in _PACKAGES):
        return importlib.import_module(f"{module}.{name}")
    if name == "__version__":
        name = "VERSION"
    if name.startswith("_") or module == "azureml":
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    if _is_ours(module):
        first = _FIRST.get(module)
        for source in (first, *_OURS) if first else _OURS:
            found = importlib.import_module(source)
            if name in found.__all__:
                return getattr(found, name)
            if remedy := reason(MISSING, source, name):
                return stand_in(f"{module}.{name}", remedy)
    if name.endswith(("Exception", "Error")):
        return _exception(name)
    return stand_in(f"{module}.{name}", _remedy(module))


def _is_ours(module: str) -> bool:
    return module.split(".")[1] in ("core", "data", "exceptions", "telemetry", "widgets")


def _all(module: str) -> list[str]:
    """Return the names of ``from module import *``. Raise NotSupported where they are unknown."""
    if not _is_ours(f"{module}."):
        raise NotSupported(
            f"from {module} import *", f"import the names that the script uses; {_remedy(module)}"
        )
    source = _FIRST.get(module, _HERE)
    lacking = [name for names in MISSING.get(source, {}).values() for name in names.split()]
    return [*importlib.import_module(source).__all__, *lacking]


def _remedy(module: str) -> str:
    parts = module.split(".")
    inner = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((_LACKING[name] for name in inner if name in _LACKING), SERVICE)


@cache
def _exception(name: str) -> type[AzureMLException]:
    """Return a class that scripts can catch, and nothing raises."""
    return type(name, (AzureMLException,), {})
