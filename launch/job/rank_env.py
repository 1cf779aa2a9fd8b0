"""The variables that ranks see (guide G4 and G5, and Azure Batch's and Azure ML's names for the same)."""

from __future__ import annotations

from collections.abc import Sequence

from launch.remote.node.work_dir import OUTPUTS

__all__ = ["EXPANDED", "job_environment", "job_paths", "node_environment", "rank_environment"]

EXPANDED = (
    "AZUREML_EXPERIMENT_NAME",
    "AZUREML_NODE_COUNT",
    "AZUREML_RUN_ID",
    "AZ_BATCHAI_GPU_COUNT_FOUND",
    "AZ_BATCHAI_MPI_HOST_FILE",
    "AZ_BATCHAI_MPI_MASTER_NODE",
    "AZ_BATCHAI_PYTORCH_INIT_METHOD",
    "AZ_BATCHAI_TASK_INDEX",
    "AZ_BATCH_HOST_LIST",
    "AZ_BATCH_IS_CURRENT_NODE_MASTER",
    "AZ_BATCH_MASTER_NODE",
    "AZ_BATCH_NODE_LIST",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "NODE_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "RANK",
    "RANKLIFT_JOB_ID",
    "RANKLIFT_NODE_ADDR",
    "RANKLIFT_OUTPUT_DIR",
    "RANKLIFT_RESTART_COUNT",
    "WORLD_SIZE",
)
"""What ranks see, where it applies to them, and what arguments may name (guide G7). Any other ``$`` in them
is the user's and stays. Not TF_CONFIG: its quotes would end those of an ``sh -c`` line."""


def job_environment(
    job: str, experiment: str, addresses: Sequence[str], port: int, world_size: int, gpus: int
) -> dict[str, str]:
    """Return the variables that are the same for every rank of the job.

    They have addresses rather than names, as Azure Batch gives them.

    ``world_size`` is the number of processes the system starts: with a launcher per node that is the
    number of nodes, as in Azure ML, and the launcher gives its own processes theirs.

    ``RANKLIFT_RESTART_COUNT`` stands for the job's first launch; the head counts further ones.
    ``AZ_BATCH_MASTER_NODE`` carries MASTER_PORT, as the guide has it (G4), and not Batch's reserved port.
    ``AZUREML_EXPERIMENT_ID`` is never set: DeepSpeed takes it for Azure ML and would want the rest of it.
    ``gpus`` are those of each node; without any, ``AZ_BATCHAI_GPU_COUNT_FOUND`` is not set.
    """
    master = addresses[0]
    return {
        "AZUREML_EXPERIMENT_NAME": experiment,
        "AZUREML_NODE_COUNT": str(len(addresses)),
        "AZUREML_RUN_ID": job,
        **({"AZ_BATCHAI_GPU_COUNT_FOUND": str(gpus)} if gpus else {}),
        "AZ_BATCHAI_MPI_MASTER_NODE": master,
        "AZ_BATCHAI_PYTORCH_INIT_METHOD": f"tcp://{master}:{port}",
        "AZ_BATCH_HOST_LIST": ",".join(addresses),
        "AZ_BATCH_MASTER_NODE": f"{master}:{port}",
        "AZ_BATCH_NODE_LIST": ";".join(addresses),
        "MASTER_ADDR": master,
        "MASTER_PORT": str(port),
        "RANKLIFT_JOB_ID": job,
        "RANKLIFT_RESTART_COUNT": "0",
        "WORLD_SIZE": str(world_size),
    }


def job_paths(folder: str) -> dict[str, str]:
    """Return variables that hold paths under each node's home folder, whose place the node knows."""
    return {"AZ_BATCHAI_MPI_HOST_FILE": f"{folder}/hostfile", "RANKLIFT_OUTPUT_DIR": f"{folder}/{OUTPUTS}"}


def node_environment(node_rank: int, address: str) -> dict[str, str]:
    """Return the variables that are the same for every rank of one node.

    >>> node_environment(1, "10.0.0.5")["AZ_BATCH_IS_CURRENT_NODE_MASTER"]
    'false'
    """
    return {
        "AZ_BATCHAI_TASK_INDEX": str(node_rank),  # of a launcher that is started once on each node
        "AZ_BATCH_IS_CURRENT_NODE_MASTER": "true" if node_rank == 0 else "false",
        "NODE_RANK": str(node_rank),
        "RANKLIFT_NODE_ADDR": address,
    }


def rank_environment(rank: int, local_rank: int, local_world_size: int) -> dict[str, str]:
    """Return one rank's own variables.

    >>> rank_environment(5, 1, 4)
    {'AZ_BATCHAI_TASK_INDEX': '5', 'LOCAL_RANK': '1', 'LOCAL_WORLD_SIZE': '4', 'RANK': '5'}
    """
    return {
        "AZ_BATCHAI_TASK_INDEX": str(rank),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(local_world_size),
        "RANK": str(rank),
    }
