"""Names that azureml-core has and Ranklift lacks, and the base of the classes, whose errors give a remedy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from launch.azureml.exceptions import NotSupported

__all__ = ["MISSING", "Element", "WithVariables", "absent"]

_STATE = "jobs of Ranklift keep lines and files; print what you want to see, write the rest under outputs/"
_STACK = "a Ranklift project is not an Azure ML workspace; stacks are made and changed with `fab up`"
_DATA = "put Dataset.File.from_files((datastore, path)).as_download() into the arguments"
_SERVICE = "only Azure ML has this service"
_SWEEP = "submit one run for each set of arguments"
_IMAGE = "describe what is needed as a conda file, a requirements file or an image"
_RUN = "see `fab jobs`, `fab logs` and `fab collect`"

MISSING: dict[str, dict[str, str]] = {
    "launch.azureml": {
        _DATA: "DataPath",
        _SERVICE: "Image Keyvault Model PrivateEndPoint PrivateEndPointConfig Webservice LinkedService "
        "SynapseWorkspaceLinkedServiceConfiguration diagnostic_log attach_legacy_compute_target "
        "is_compute_target_prepared prepare_compute_target remove_legacy_compute_target AutoMLConfig "
        "Pipeline PublishedPipeline PythonScriptStep ParallelRunConfig",
        _SWEEP: "HyperDriveConfig HyperDriveRun RandomParameterSampling GridParameterSampling "
        "BayesianParameterSampling BanditPolicy PrimaryMetricGoal",
        _IMAGE: "ContainerRegistry",
        _RUN: "RunDetails get_run",
        "use ScriptRunConfig": "Estimator PyTorch TensorFlow Chainer MMLBaseEstimator",
        "fab uses the login of the Azure CLI": "InteractiveLoginAuthentication AzureCliAuthentication "
        "ServicePrincipalAuthentication MsiAuthentication",
    },
    "launch.azureml.runconfig": {
        _DATA: "Data DataLocation DataPath DataReferenceConfiguration DatacacheConfiguration Dataset "
        "DatasetRegistrationOptions GlobsOptions MountOptions OutputData OutputOptions RegistrationOptions "
        "UploadOptions Uri DatasetConsumptionConfig DatacacheConsumptionConfig",
        _SERVICE: "AmlComputeConfiguration ApplicationEndpointConfiguration HdiConfiguration "
        "HistoryConfiguration KubernetesComputeConfiguration ParallelTaskConfiguration SparkConfiguration "
        "SparkEnvironment SparkSection DatabricksCluster DatabricksEnvironment DatabricksSection EggLibrary "
        "JarLibrary MavenLibrary PyPiLibrary RCranLibrary Cr",
        _IMAGE: "AzureContainerRegistry ContainerRegistry DEFAULT_CPU_IMAGE DEFAULT_GPU_IMAGE MPI_CPU_IMAGE "
        "MPI_GPU_IMAGE",
    },
    "launch.azureml.compute": {
        _STACK: "AdlaCompute AksCompute BatchCompute ComputeInstance DataFactoryCompute DatabricksCompute "
        "DsvmCompute HDInsightCompute KubernetesCompute KustoCompute RemoteCompute SynapseCompute",
    },
    "Workspace": {
        _STACK: "create delete update setup list write_config add_private_endpoint sku location "
        "delete_private_endpoint_connection private_endpoints diagnose_workspace "
        "get_default_compute_target get_details DEFAULT_CPU_CLUSTER_CONFIGURATION "
        "DEFAULT_CPU_CLUSTER_NAME DEFAULT_GPU_CLUSTER_CONFIGURATION DEFAULT_GPU_CLUSTER_NAME",
        _DATA: "datasets datastores set_default_datastore",
        _SERVICE: "delete_connection discovery_url environments experiments get_connection "
        "get_default_keyvault get_mlflow_tracking_uri images linked_services list_connections list_keys "
        "models service_context set_connection sync_keys tags update_dependencies webservices",
    },
    "ComputeTarget": {
        _STACK: "attach create delete deserialize detach get_status list provisioning_configuration "
        "refresh_state serialize update wait_for_completion add_identity get get_active_runs list_nodes "
        "remove_identity supported_vmsizes provision provisioning_state list_quotas list_usages "
        "update_quotas",
    },
    "Experiment": {
        _SERVICE: "archive archived_time delete from_directory get_docs_url id list reactivate refresh "
        "identity remove_tags set_tags tag tags start_logging DELIM EXPERIMENT_ID_PATH EXPERIMENT_NAME_PATH "
        "TID_FMT WORKSPACE_FMT",
    },
    "Run": {
        _STATE: "log log_accuracy_table log_confusion_matrix log_image log_list log_predictions "
        "log_residuals log_row log_table get_metrics upload_file upload_files upload_folder flush "
        "add_properties get_properties properties tag set_tags remove_tags",
        _SERVICE: "add_type_provider child_run clean complete create_children fail get_children get_docs_url "
        "get_environment get_secret get_secrets get_snapshot_id identity list list_by_compute parent "
        "register_model restore_snapshot start submit_child take_snapshot get_submitted_run "
        "DELIM EXPERIMENT_ID_PATH EXPERIMENT_NAME_PATH RUN_PATH TID_FMT WORKSPACE_FMT",
        "the script on a node has its numbers in the environment: RANK, RANKLIFT_JOB_ID": "get_context",
        _RUN: "get_detailed_status get_details_with_logs description name number",
    },
    "Environment": {
        _IMAGE: "add_private_pip_wheel build build_local from_docker_build_context "
        "from_existing_conda_environment get_image_details inferencing_stack_version asset_id databricks r "
        "spark",
        _SERVICE: "label list load_from_directory save_to_directory",
    },
    "CondaDependencies": {
        _IMAGE: "DEFAULT_NUMBER_OF_CONDA_PACKAGES DEFAULT_NUMBER_OF_PIP_PACKAGES add_cntk_package "
        "add_tensorflow_conda_package add_tensorflow_pip_package as_dict get_default_number_of_packages "
        "merge_requirements pip_options remove_channel remove_pip_option save save_to_file sdk_origin_url "
        "serialize_to_string set_pip_index_url set_pip_option",
    },
    "RunConfiguration": {
        _SERVICE: "load save delete history spark hdi paralleltask amlcompute kubernetescompute services "
        "auto_prepare_environment auto_cluster_compute_specification",
        _DATA: "source_directory_data_store datacaches",
    },
    "ScriptRunConfig": {_SERVICE: "DELIM identity"},
    "Dataset": {_DATA: "Tabular get_all get_by_id auto_type_inference"},
    "FileDataset": {
        _DATA: "as_cache as_hdfs download file_metadata filter mount random_split skip take to_path register "
        "unregister_all_versions update id name version tags description partition_keys",
    },
    "Datastore": {
        "`fab data.put` uploads": "upload upload_files download register_azure_blob_container set_as_default "
        "unregister",
    },
}
"""Missing names by class (or module) and remedy."""


def absent(owner: str, name: str) -> Exception:
    """Return the error to raise for a name that ``owner`` lacks.

    >>> print(absent("Run", "get_children"))
    Run.get_children is not offered by Ranklift: only Azure ML has this service
    >>> absent("Run", "logg")
    AttributeError("Run has no attribute 'logg'")
    """
    for remedy, names in MISSING.get(owner, {}).items():
        if name in names.split():
            return NotSupported(f"{owner}.{name}", remedy)
    return AttributeError(f"{owner} has no attribute {name!r}")


class _Named(type):
    """The metaclass, for missing attributes of the class itself, such as ``Environment.list``."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")
        raise absent(cls._known_as or cls.__name__, name)


class Element(metaclass=_Named):
    """A base that refuses misspelt attributes, as in azureml-core, and names those that Ranklift lacks.

    A class sets ``_complete`` at the end of its constructor; of a dataclass that is done here.
    """

    _complete = False
    _known_as = ""
    """The class's name in :data:`MISSING`; empty: its own name."""

    def __post_init__(self) -> None:
        self._complete = True

    def __setattr__(self, name: str, value: Any) -> None:
        if self._complete:
            getattr(self, name)
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        raise absent(self._known_as or type(self).__name__, name)


class WithVariables(Element):
    """An element with variables for processes; a mapping that is assigned is copied."""

    _variables: dict[str, str]

    @property
    def environment_variables(self) -> dict[str, str]:
        """Variables of every process of a run; a run configuration's win over its environment's."""
        return self._variables

    @environment_variables.setter
    def environment_variables(self, variables: Mapping[str, str]) -> None:
        self._variables = dict(variables)
