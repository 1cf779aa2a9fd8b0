"""Names that azureml-core has and Ranklift lacks, and the base of the classes, whose errors give a remedy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from launch.azureml.exceptions import NotSupported
from launch.azureml.notices import report

__all__ = [
    "MISSING",
    "SERVICE",
    "SWEEP",
    "Element",
    "StandIn",
    "WithVariables",
    "absent",
    "named",
    "reason",
    "stand_in",
]

_STATE = (
    "not kept: a run has the lines and files of its processes; print values there, write files to outputs/"
)
_STACK = "a Ranklift project is not an Azure ML workspace; stacks are made and changed with `fab up`"
_DATA = "put Dataset.File.from_files((datastore, path)).as_download() into the arguments"
_MODELS = 'a model is a file that the run wrote: run.download_files("outputs") copies it here'
SERVICE = "only Azure ML has this service"
SWEEP = "submit one run for each set of arguments"
_IMAGE = "describe what is needed as a conda file, a requirements file or an image"
_RUN = "see `fab jobs`, `fab logs` and `fab collect`"
_LOGIN = "fab uses your ssh key and the login of the Azure CLI"

MISSING: dict[str, dict[str, str]] = {
    "launch.azureml": {
        _DATA: "DataPath",
        _MODELS: "Image Model Webservice",
        SERVICE: "Keyvault PrivateEndPoint PrivateEndPointConfig LinkedService "
        "SynapseWorkspaceLinkedServiceConfiguration diagnostic_log attach_legacy_compute_target "
        "is_compute_target_prepared prepare_compute_target remove_legacy_compute_target AutoMLConfig "
        "Pipeline PublishedPipeline PythonScriptStep ParallelRunConfig",
        SWEEP: "HyperDriveConfig HyperDriveRun RandomParameterSampling GridParameterSampling "
        "BayesianParameterSampling BanditPolicy PrimaryMetricGoal",
        "use ws.get_run(run_id)": "get_run",
        "use ScriptRunConfig": "Estimator PyTorch TensorFlow Chainer MMLBaseEstimator",
    },
    "launch.azureml.runconfig": {
        _DATA: "Data DataLocation DataPath DataReferenceConfiguration DatacacheConfiguration Dataset "
        "DatasetRegistrationOptions GlobsOptions MountOptions OutputData OutputOptions RegistrationOptions "
        "UploadOptions Uri DatasetConsumptionConfig DatacacheConsumptionConfig",
        SERVICE: "AmlComputeConfiguration ApplicationEndpointConfiguration HdiConfiguration "
        "HistoryConfiguration KubernetesComputeConfiguration ParallelTaskConfiguration SparkConfiguration "
        "SparkEnvironment SparkSection DatabricksCluster DatabricksEnvironment DatabricksSection EggLibrary "
        "JarLibrary MavenLibrary PyPiLibrary RCranLibrary Cr",
        _IMAGE: "AzureContainerRegistry",
    },
    "launch.azureml.compute": {
        _STACK: "AdlaCompute AksCompute BatchCompute ComputeInstance DataFactoryCompute DatabricksCompute "
        "DsvmCompute HDInsightCompute KubernetesCompute KustoCompute RemoteCompute SynapseCompute",
    },
    "Workspace": {
        _STACK: "create delete update setup list add_private_endpoint sku "
        "delete_private_endpoint_connection private_endpoints diagnose_workspace "
        "get_default_compute_target DEFAULT_CPU_CLUSTER_CONFIGURATION "
        "DEFAULT_CPU_CLUSTER_NAME DEFAULT_GPU_CLUSTER_CONFIGURATION DEFAULT_GPU_CLUSTER_NAME",
        _DATA: "set_default_datastore",
        "put a variable of this machine into environment.environment_variables": "get_default_keyvault",
        SERVICE: "delete_connection discovery_url experiments get_connection "
        "get_mlflow_tracking_uri images linked_services list_connections list_keys "
        "models service_context set_connection sync_keys tags update_dependencies webservices",
    },
    "ComputeTarget": {
        _STACK: "attach delete deserialize detach list "
        "refresh_state serialize update add_identity get get_active_runs list_nodes "
        "remove_identity supported_vmsizes provision provisioning_state list_quotas list_usages "
        "update_quotas",
    },
    "AmlComputeStatus": {
        "`fab status` shows the nodes": "allocation_state allocation_state_transition_time creation_time "
        "current_node_count errors modified_time node_state_counts provisioning_state "
        "provisioning_state_transition_time scale_settings target_node_count vm_priority vm_size",
    },
    "Authentication": {_LOGIN: "get_authentication_header get_token signed_session"},
    "RunDetails": {_RUN: "get_widget_data"},
    "Experiment": {
        "put the training into a script, and submit a ScriptRunConfig that names it": "start_logging",
        SERVICE: "archive archived_time delete from_directory get_docs_url id list reactivate refresh "
        "identity tags DELIM EXPERIMENT_ID_PATH EXPERIMENT_NAME_PATH TID_FMT WORKSPACE_FMT",
    },
    "Run": {
        SERVICE: "add_type_provider child_run clean create_children get_docs_url get_environment get_secret "
        "get_secrets get_snapshot_id identity list list_by_compute restore_snapshot start submit_child "
        "get_submitted_run DELIM EXPERIMENT_ID_PATH EXPERIMENT_NAME_PATH RUN_PATH TID_FMT WORKSPACE_FMT",
        "the script on a node has its numbers in the environment: RANK, RANKLIFT_JOB_ID": "get_context",
        _RUN: "get_detailed_status",
    },
    "Environment": {
        _IMAGE: "add_private_pip_wheel build build_local from_docker_build_context "
        "from_existing_conda_environment get_image_details inferencing_stack_version asset_id databricks r "
        "spark",
        SERVICE: "label list load_from_directory save_to_directory",
    },
    "CondaDependencies": {
        _IMAGE: "DEFAULT_NUMBER_OF_CONDA_PACKAGES DEFAULT_NUMBER_OF_PIP_PACKAGES add_cntk_package "
        "add_tensorflow_conda_package add_tensorflow_pip_package as_dict get_default_number_of_packages "
        "merge_requirements pip_options remove_channel remove_pip_option save save_to_file sdk_origin_url "
        "serialize_to_string set_pip_index_url set_pip_option",
    },
    "RunConfiguration": {
        SERVICE: "load save delete history spark hdi paralleltask amlcompute kubernetescompute services "
        "auto_prepare_environment auto_cluster_compute_specification",
        _DATA: "source_directory_data_store datacaches",
    },
    "ScriptRunConfig": {SERVICE: "DELIM identity"},
    "Dataset": {_DATA: "Tabular get_all get_by_id auto_type_inference"},
    "FileDataset": {
        _DATA: "as_cache as_hdfs download file_metadata filter mount random_split skip take to_path register "
        "unregister_all_versions update id name version tags description partition_keys",
    },
    "Dataset.File": {
        "upload once with `fab data.put FOLDER PATH`; from_files names its place": "upload_directory"
    },
    "DataReference": {_DATA: "to_config as_upload path"},
    "Datastore": {
        "upload once with `fab data.put FOLDER PATH`, then remove the call": "upload upload_files",
        "`fab data.get` downloads": "download",
        "`pulumi config set ranklift:datastores` names containers": "register_azure_blob_container "
        "register_azure_file_share register_azure_data_lake_gen2 set_as_default unregister as_upload is_sas",
    },
}
"""Missing names by class (or module) and remedy."""
_IGNORED: dict[str, dict[str, str]] = {
    "Run": {
        _STATE: "log log_accuracy_table log_confusion_matrix log_image log_list log_predictions "
        "log_residuals log_row log_table upload_file upload_files upload_folder",
        "no effect: a run ends when its processes have": "complete fail flush",
        "no effect: tags stay with the run": "remove_tags",
        "no effect: the pushed code is the snapshot": "take_snapshot",
    },
    "Experiment": {
        "not kept: an experiment is a name; give tags to submit(…)": "remove_tags set_tags tag",
    },
}
"""Methods without an effect, by class and reason. Scripts call them while a run goes on, which an error would
leave behind."""


def absent(owner: str, name: str) -> Exception:
    """Return the error to raise for a name that ``owner`` lacks.

    >>> print(absent("Run", "create_children"))
    Run.create_children is not offered by Ranklift: only Azure ML has this service
    >>> absent("Run", "logg")
    AttributeError("Run has no attribute 'logg'")
    """
    remedy = reason(MISSING, owner, name) or reason(_IGNORED, owner, name)
    if remedy is None:
        return AttributeError(f"{owner} has no attribute {name!r}")
    return NotSupported(f"{owner}.{name}", remedy)


def named(module: str, name: str) -> StandIn:
    """Return the stand-in for a class that ``module`` lacks. Raise AttributeError for an unknown name."""
    remedy = reason(MISSING, module, name)
    if remedy is None:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    return stand_in(f"{module}.{name}", remedy)


def reason(table: Mapping[str, Mapping[str, str]], owner: str, name: str) -> str | None:
    """Return what a table has for a name of ``owner``."""
    return next((why for why, names in table.get(owner, {}).items() if name in names.split()), None)


class StandIn(type):
    """A class that Ranklift lacks: scripts may import it, and check for it; any other use is refused."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> StandIn:
        """Return the class; raise NotSupported for a class derived from one."""
        for base in bases:
            if isinstance(base, StandIn):
                raise base.refusal()
        return super().__new__(cls, name, bases, namespace)

    def refusal(cls) -> NotSupported:
        """Return the error for a use of the class."""
        return NotSupported(*cls.__dict__["_refused"])

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Raise NotSupported."""
        raise cls.refusal()

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")
        raise cls.refusal()


@cache
def stand_in(what: str, remedy: str) -> StandIn:
    """Return the class that stands for ``what``, a dotted name."""
    return StandIn(what.rpartition(".")[2], (), {"_refused": (what, remedy)})


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
        if isinstance(value, StandIn):
            raise value.refusal()
        if self._complete:
            getattr(self, name)
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        owner = self._known_as or type(self).__name__
        why = reason(_IGNORED, owner, name)
        if why is None:
            raise absent(owner, name)
        return _ignored(f"{owner}.{name}: {why}")


def _ignored(notice: str) -> Callable[..., None]:
    def ignore(*args: Any, **kwargs: Any) -> None:
        report([notice])

    return ignore


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
