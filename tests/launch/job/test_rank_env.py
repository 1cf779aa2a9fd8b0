"""The variables that ranks get, and those that remain the user's to set."""

from __future__ import annotations

import pytest

from launch.errors import InputError
from launch.job.rank_env import EXPANDED
from launch.job.spec import JobSpec


@pytest.mark.parametrize("name", EXPANDED)
def test_the_user_sets_no_variable_that_ranks_get_from_the_launcher(name: str) -> None:
    with pytest.raises(InputError, match="is set by the launcher for every rank"):
        JobSpec(name="digits", kind="pytorch", command=("train.py",), env={name: "1"})


@pytest.mark.parametrize("name", ["AZ_BATCH_POOL_ID", "AZ_BATCHAI_INPUT_TRAIN", "AZUREML_MODEL_DIR"])
def test_the_user_sets_a_variable_of_azure_that_ranks_do_not_get_otherwise(name: str) -> None:
    spec = JobSpec(name="digits", kind="pytorch", command=("train.py",), env={name: "1"})
    assert spec.env == {name: "1"}
