"""A script for Azure Machine Learning's SDK v1.

Run it in this folder: ``RANKLIFT_STACK=dev ranklift run-v1 submit.py``; without that variable the compute
target names the stack.
"""

from azureml.core import Environment, Experiment, ScriptRunConfig, Workspace
from azureml.core.runconfig import PyTorchConfiguration

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
