"""A script for Azure Machine Learning's SDK v1; only its import lines are Ranklift's.

They were ``from azureml.core import Environment, Experiment, ScriptRunConfig, Workspace`` and
``from azureml.core.runconfig import PyTorchConfiguration``. Run it in this folder:
``RANKLIFT_STACK=dev python submit.py``; without that variable the compute target names the stack.
"""

from launch.azureml import Environment, Experiment, ScriptRunConfig, Workspace
from launch.azureml.runconfig import PyTorchConfiguration

ws = Workspace.from_config()
run_config = ScriptRunConfig(
    source_directory="./src",
    script="train.py",
    arguments=["--epochs", 60, "--local_rank", "$LOCAL_RANK"],
    compute_target="cluster",
    environment=Environment("torch"),
    distributed_job_config=PyTorchConfiguration(process_count=4, node_count=2),
)

run = Experiment(ws, "flowers").submit(run_config)
run.wait_for_completion(show_output=True)
print("status:", run.get_status())
