"""Whether the torch of a job's Python has code for the node's GPUs, found out without importing it.

Importing torch takes seconds. Its CUDA version is in ``torch/version.py``; the list that
``torch.cuda.get_arch_list()`` returns is a constant of ``libtorch_python.so``.
"""

from __future__ import annotations

__all__ = ["DRIVER", "LOOK", "driver_version", "torch_version", "unfit_torch"]

DRIVER = "/proc/driver/nvidia/version"
_MARK = "torch build:"
LOOK = f"""
import mmap, os, re
try:
    folder = os.path.dirname(importlib.util.find_spec("torch").origin)
    with open(folder + "/version.py") as file:
        found = dict(re.findall(r"^(__version__|cuda)\\b[^=]*= '(.+)'", file.read(), re.M))
    with open(folder + "/lib/libtorch_python.so", "rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    built = re.search(rb"\\0((?:(?:sm|compute)_[0-9]+[a-z]?(?: (?!\\0)|(?=\\0)))+)\\0", data)
    print("{_MARK}", found["__version__"], found["cuda"], built.group(1).decode())
except (ImportError, AttributeError, KeyError, OSError, ValueError):
    pass  # another build than PyTorch's own, or none for CUDA
"""
"""Program, behind the module check's, that prints torch's version, CUDA's, and which GPUs it is built for."""
_OLDEST_DRIVER = {"11": 450, "12": 525, "13": 580}
"""Driver that CUDA's major version needs (NVIDIA, "CUDA compatibility", minor version compatibility)."""
_TURING = 7.5
_DIGITS = 5
_INDEX = "https://download.pytorch.org/whl/"


def driver_version(path: str = DRIVER) -> str:
    """Return the version of the node's NVIDIA driver, such as ``570.133.20``; "" without one."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            words = file.readline().split()
    except OSError:
        return ""
    return next((word for word in words if word[:1].isdigit() and "." in word), "")


def unfit_torch(output: bytes, capability: str, driver: str, *, in_image: bool = False) -> str:
    """Return why the torch in the output of :data:`LOOK` cannot use GPUs of this compute capability; "" when
    it can, or when that is unknown.

    An image may bring the libraries of a newer driver, which data centre GPUs use with the node's older one
    (NVIDIA, "CUDA compatibility", forward compatibility): the driver is no reason there.

    >>> seen = b"torch build: 2.15.0+cu132 13.2 sm_75 sm_80 sm_86 sm_90 sm_100 sm_120"
    >>> unfit_torch(seen, "9.0", "580.126.16")
    ''
    >>> unfit_torch(seen, "7.0", "570.133.20").partition(";")[0]
    'torch 2.15.0+cu132 is built for sm_75 sm_80 sm_86 sm_90 sm_100 sm_120, and the GPUs here are sm_70'
    """
    words = _build(output)
    if not words:
        return ""
    version, cuda, *built = words
    major = cuda.partition(".")[0]
    problem = ""
    if not any(_runs(name, capability) for name in built):
        mine = "sm_" + capability.replace(".", "")
        problem = f"is built for {' '.join(built)}, and the GPUs here are {mine}"
    elif driver and not in_image and int(driver.partition(".")[0]) < _OLDEST_DRIVER.get(major, 0):
        problem = f"is built for CUDA {cuda}, which needs driver {_OLDEST_DRIVER[major]}; here is {driver}"
    return f"torch {version} {problem}; {_remedy(capability, driver)}" if problem else ""


def torch_version(output: bytes) -> str:
    """Return the version in the output of :data:`LOOK`; "" where that is unknown."""
    return (_build(output) or [""])[0]


def _build(output: bytes) -> list[str]:
    lines = output.decode("utf-8", "replace").splitlines()
    return next((line[len(_MARK) :].split() for line in lines if line.startswith(_MARK)), [])


def _runs(name: str, capability: str) -> bool:
    """Return whether code for ``name`` runs on the GPU: that of an ``sm`` on later ones of its generation, a
    ``compute`` on all later ones (NVIDIA, "CUDA programming guide", binary and PTX compatibility)."""
    kind, _, number = name.partition("_")
    if not (
        number.isascii() and number.isdecimal() and 1 < len(number) < _DIGITS
    ):  # sm_90a is for that one alone
        return kind == "sm" and number[:-1] == capability.replace(".", "")
    of, mine = (int(number[:-1]), int(number[-1])), tuple(map(int, capability.split(".")))
    return of <= mine and (kind == "compute" or of[0] == mine[0])


def _remedy(capability: str, driver: str) -> str:
    """Return which torch fits: for GPUs before Turing those for CUDA 12.6, which end with torch 2.14
    (pytorch/pytorch#172352, #190385)."""
    if float(capability) < _TURING:
        wanted, index = "torch<2.15", "cu126"
    elif driver and int(driver.partition(".")[0]) < _OLDEST_DRIVER["13"]:
        wanted, index = "torch", "cu128"
    else:
        wanted, index = "torch", "cu130"
    return f"require {wanted} with --extra-index-url {_INDEX}{index}"
