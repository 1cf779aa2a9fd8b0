"""Microsoft's curated environments, and the public images that Azure ML runs them from.

Azure/azureml-assets builds each from ``assets/training/*/environments/NAME``, whose ``environment.yaml``
publishes it as ``azureml/curated/NAME`` on mcr.microsoft.com; the image's tag is the environment's version.
In workspaces the names begin with ``AzureML-`` (CLI v2, "command job YAML schema", ``environment``).
"""

from __future__ import annotations

__all__ = ["CURATED", "curated_image", "curated_name"]

_REGISTRY = "mcr.microsoft.com/azureml/curated"
_PREFIX = "azureml-"

CURATED = (
    # Folders of Azure/azureml-assets: general, and finetune_acft_hf_nlp for the first.
    "acft-hf-nlp-gpu",
    "acpt-pytorch-1.11-cuda11.3",
    "acpt-pytorch-1.12-cuda11.6",
    "acpt-pytorch-1.12-py39-cuda11.6",
    "acpt-pytorch-1.13-cuda11.7",
    "acpt-pytorch-2.0-cuda11.7",
    "acpt-pytorch-2.1-cuda12.1",
    "acpt-pytorch-2.1-cuda12.1-py3.10",
    "acpt-pytorch-2.2-cuda12.1",
    "acpt-pytorch-2.3-cuda12.1",
    "acpt-pytorch-2.4-cuda12.1",
    "acpt-pytorch-2.4-cuda12.4",
    "acpt-pytorch-2.5-cuda12.4",
    "acpt-pytorch-2.7-cuda12.6",
    "acpt-pytorch-2.8-cuda12.6",
    "lightgbm-3.3",
    "sklearn-1.0",
    "sklearn-1.1",
    "sklearn-1.5",
    "tensorflow-2.11-cuda11",
    "tensorflow-2.12-cuda11",
    "tensorflow-2.16-cuda11",
    "tensorflow-2.16-cuda12",
    # MicrosoftDocs/azure-docs, resource-curated-environments.md at 019172f and before.
    "acpt-pytorch-1.12-py39-cuda11.6-gpu",
    "lightgbm-3.2-ubuntu18.04-py37-cpu",
    "pytorch-1.7-ubuntu18.04-py37-cuda11-gpu",
    "pytorch-1.8-ubuntu18.04-py37-cuda11-gpu",
    "pytorch-1.9-ubuntu18.04-py37-cuda11-gpu",
    "pytorch-1.10-ubuntu18.04-py38-cuda11-gpu",
    "sklearn-0.24-ubuntu18.04-py37-cpu",
    "sklearn-1.0-ubuntu20.04-py38-cpu",
    "tensorflow-2.4-ubuntu18.04-py37-cuda11-gpu",
)
"""Their names in Microsoft's registry ``azureml``."""


def curated_name(name: str) -> str:
    """Return a name as :data:`CURATED` spells it: without the workspaces' prefix, in lower case.

    >>> curated_name("AzureML-ACPT-pytorch-2.2-cuda12.1")
    'acpt-pytorch-2.2-cuda12.1'
    """
    return name.lower().removeprefix(_PREFIX)


def curated_image(name: str, version: str) -> str | None:
    """Return the image of a curated environment; None for another name. No ``version`` means the latest.

    >>> curated_image("AzureML-sklearn-1.5", "7"), curated_image("torch", "")
    ('mcr.microsoft.com/azureml/curated/sklearn-1.5:7', None)
    """
    known = curated_name(name)
    return f"{_REGISTRY}/{known}:{version or 'latest'}" if known in CURATED else None
