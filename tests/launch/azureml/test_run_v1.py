"""``ranklift run-v1``: a script runs as under Python, and its imports of ``azureml`` are answered."""

from __future__ import annotations

import importlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch.azureml import Environment, NotSupported, ScriptRunConfig, UserErrorException, Workspace
from launch.azureml.missing import StandIn
from launch.azureml.scripts import azureml_modules
from tests.launch.azureml.fake_fab import FAILED, JOB, PYTHON, FakeFab
from tests.launch.azureml.in_process import imports_restored, run_program

pytestmark = pytest.mark.usefixtures("fab")
RANKLIFT = Path(PYTHON).with_name("ranklift")


def program(*words: str) -> subprocess.CompletedProcess[str]:
    """The program as a user starts it, in a process of its own."""
    return subprocess.run(
        [RANKLIFT, *words], capture_output=True, text=True, check=False, timeout=60, stdin=subprocess.DEVNULL
    )


@pytest.mark.parametrize(
    ("text", "status", "out", "err"),
    [
        ("print('done')", 0, "done\n", ""),
        ("import sys; sys.exit(3)", 3, "", ""),
        ("import sys; sys.exit('no data')", 1, "", "no data\n"),
        ("raise KeyboardInterrupt", 130, "", "interrupted\n"),
        (
            "from pathlib import Path\nimport sys\n"
            "print(__name__, __file__ == str(Path('submit.py').absolute()), sys.argv)\n"
            "print(sys.modules['__main__'].Path)",
            0,
            "__main__ True ['submit.py', '-x', '--help', 'a b']\n<class 'pathlib.Path'>\n",
            "",
        ),
    ],
)
def test_a_script_runs_as_python_runs_it(text: str, status: int, out: str, err: str) -> None:
    Path("submit.py").write_text(text)
    ran = program("run-v1", "submit.py", "-x", "--help", "a b")
    assert (ran.returncode, ran.stdout, ran.stderr) == (status, out, err)


@pytest.mark.parametrize("text", ["def half(number):\n    return 1 / number\n\nhalf(0)\n", "import\n"])
def test_an_error_of_the_script_is_printed_as_python_prints_it(text: str) -> None:
    Path("submit.py").write_text(text)
    ran = program("run-v1", "submit.py")
    plain = subprocess.run([PYTHON, "submit.py"], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (plain.returncode, plain.stderr)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "usage: ranklift run-v1 SCRIPT"),
        (("run-v1",), "usage: ranklift run-v1 SCRIPT"),
        (("launch", "submit.py"), "usage: ranklift run-v1 SCRIPT"),
        (("run-v1", "nowhere.py"), "error: script = 'nowhere.py': cannot be read: No such file or directory"),
        (("run-v1", "src"), "error: script = 'src': cannot be read: Is a directory"),
        (("run-v1", "train.ipynb"), "error: script = 'train.ipynb': is a notebook, not a Python script; "),
    ],
)
def test_a_wrong_command_line_is_refused(words: tuple[str, ...], said: str) -> None:
    ran = program(*words)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith(said)


def test_a_failed_run_that_the_script_does_not_catch_names_the_line(
    fab: FakeFab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fab.state(FAILED)
    Path("submit.py").write_text(
        "from azureml.core import Experiment, ScriptRunConfig, Workspace\n"
        "run = Experiment(Workspace.from_config(), 'x').submit(ScriptRunConfig('src', 'train.py'))\n"
        "run.wait_for_completion()\n"
    )
    assert run_program(["run-v1", "submit.py"], monkeypatch) == 1
    assert capsys.readouterr().err == (
        f"error: submit.py:3: job {JOB} FAILED: rank 2 on node000001 ended with exit status 3\n"
        "  loss is nan\n  giving up\n"
    )


def test_a_script_may_use_names_of_its_own_that_ranklift_lacks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("submit.py").write_text(
        "from azureml.train.estimator import Estimator\nclass Estimator:\n    pass\nEstimator()\n"
    )
    assert run_program(["run-v1", "submit.py"], monkeypatch) == 0
    assert capsys.readouterr().err == ""


def test_an_installed_azureml_core_is_not_used_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    (site / "azureml" / "core").mkdir(parents=True)
    (site / "azureml" / "core" / "__init__.py").write_text("VERSION = 'theirs'\n")
    (site / "azureml_core-1.2.3.dist-info").mkdir()
    (site / "azureml_core-1.2.3.dist-info" / "METADATA").write_text("Name: azureml-core\nVersion: 1.2.3\n")
    Path("submit.py").write_text("import azureml.core\nprint(azureml.core.VERSION)\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")]))
    ran = program("run-v1", "submit.py")
    assert (ran.returncode, ran.stdout) == (0, "1.61.0\n")
    assert ran.stderr == (
        "notice: azureml-core 1.2.3 is installed here and not used: Ranklift's classes take its place\n"
    )


# -- modules ------------------------------------------------------------------------------------------------


@pytest.fixture
def served() -> Iterator[None]:
    with imports_restored():
        azureml_modules.serve_azureml()
        yield


@pytest.mark.usefixtures("served")
class TestModules:
    @pytest.mark.parametrize(
        ("line", "is_offered"),
        [
            ("from azureml.core import Workspace as X", True),
            ("from azureml.core.environment import CondaDependencies as X", True),
            ("from azureml.core.compute_target import ComputeTargetException as X", True),
            ("from azureml.core.runconfig import DEFAULT_CPU_IMAGE as X", True),
            ("from azureml.core.compute import AmlCompute as X", True),
            ("from azureml.core import runconfig; X = runconfig.MpiConfiguration", True),
            ("import azureml.core.run; X = azureml.core.run.Run", True),
            ("from azureml.data.data_reference import DataReference as X", True),
            ("from azureml.exceptions import ProjectSystemException as X", True),
            ("from azureml.core import Keyvault as X", False),
            ("from azureml.core.compute import AksCompute as X", False),
            ("from azureml.core.runconfig import DataReferenceConfiguration as X", False),
            ("from azureml.train import hyperdrive; X = hyperdrive.choice", False),
            ("from azureml.contrib.something.new import Anything as X", False),
            ("from azureml.opendatasets import MNIST as X", False),
        ],
    )
    def test_every_class_can_be_imported(self, line: str, *, is_offered: bool) -> None:
        scope: dict[str, object] = {}
        exec(line, scope)
        assert isinstance(scope["X"], StandIn) is not is_offered

    def test_a_star_brings_the_classes_and_those_that_are_lacking(self) -> None:
        scope: dict[str, object] = {}
        exec("from azureml.core import *", scope)
        assert scope["Workspace"] is Workspace
        assert isinstance(scope["Keyvault"], StandIn)

    def test_a_star_of_unknown_names_is_refused(self) -> None:
        with pytest.raises(NotSupported, match=r"^from azureml\.train\.hyperdrive import \* is not offered"):
            exec("from azureml.train.hyperdrive import *", {})

    @pytest.mark.parametrize("module", ["azureml.cor", "azureml.cor.run", "azureml_core"])
    def test_a_misspelt_package_is_not_found(self, module: str) -> None:
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(module)

    @pytest.mark.parametrize(
        "use",
        [
            "X()",
            "X.create",
            "class Y(X): pass",
            "Environment('e').docker.base_image = X",
            "ScriptRunConfig('src', 'train.py', environment=X)",
        ],
    )
    def test_a_class_that_is_lacking_is_refused_at_its_use(self, use: str) -> None:
        scope = {"Environment": Environment, "ScriptRunConfig": ScriptRunConfig}
        exec("from azureml.core import Keyvault as X\nknown = [X, isinstance(1, X), X | None]", scope)
        with pytest.raises(NotSupported, match=r"^azureml\.core\.Keyvault is not offered by Ranklift: only"):
            exec(use, scope)

    def test_a_class_in_the_arguments_is_refused(self, fab: FakeFab) -> None:
        scope: dict[str, object] = {}
        exec(
            "from azureml.core import Experiment, Keyvault, ScriptRunConfig\n"
            "config = ScriptRunConfig('src', 'train.py', ['--key', Keyvault])",
            scope,
        )
        with pytest.raises(UserErrorException, match=r"^arguments = 'Keyvault': has no value for a command"):
            exec("Experiment(None, 'x').submit(config)", scope)
        assert fab.calls == []
