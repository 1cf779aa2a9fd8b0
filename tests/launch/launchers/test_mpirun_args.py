"""Further arguments for mpirun, held against the job's plan."""

from __future__ import annotations

import pytest

from launch.errors import InputError
from launch.job.spec import JobNode, JobSpec
from launch.launchers.mpi import Mpi
from launch.launchers.mpirun_args import check_mpirun_args

ANY = None
OMPI, MPICH, INTEL = "openmpi", "mpich", "intelmpi"


@pytest.mark.parametrize(
    ("flavour", "args"),
    [
        (ANY, ""),
        (ANY, "-np 4"),
        (ANY, "-l --report-bindings"),
        (ANY, "--unknown a b -x NAME"),
        (ANY, "-s all"),
        (OMPI, "-x NAME -x A=1 --mca pml ob1 -mca btl self,tcp --bind-to core"),
        (OMPI, "--report-bindings --tag-output --timeout 60"),
        (OMPI, "--n 4 -N 2 --map-by ppr:2:node --map-by ppr:1:socket:PE=4 --map-by node"),
        (OMPI, "--ppr 2:node --npernode 2"),
        (OMPI, "--prtemca prte_if_include eth0 --display map"),
        (MPICH, "-genv A B -genv A=B -env NAME -1 -genvlist A,B -bind-to core -l -prepend-rank"),
        (MPICH, "-ppn 2 --np=4 -iface eth0 -map-by socket"),
        (INTEL, "-perhost 2 -genv I_MPI_DEBUG 5 -print-rank-map -tune file -s all -hostname"),
    ],
)
def test_what_leaves_the_plan_alone_passes(flavour: str | None, args: str) -> None:
    check_mpirun_args("mpi_args", args.split(), flavour, [2, 2])


RANKS, EACH, HOSTS = "the job has 4 ranks", "the job has 2 ranks on each node", "own nodes are mpirun's hosts"


@pytest.mark.parametrize(
    ("flavour", "args", "value", "problem"),
    [
        *((one, "-np 1", "-np 1", RANKS) for one in (ANY, OMPI, MPICH, INTEL)),
        *((one, "-n 8", "-n 8", RANKS) for one in (ANY, OMPI, MPICH, INTEL)),
        *((one, "-np", "-np", RANKS) for one in (ANY, OMPI, MPICH, INTEL)),
        *((one, "--host a,b", "--host a,b", HOSTS) for one in (ANY, OMPI, MPICH, INTEL)),
        *((one, "-machinefile f", "-machinefile f", HOSTS) for one in (ANY, OMPI, MPICH, INTEL)),
        *((one, "--hostfile f", "--hostfile f", HOSTS) for one in (ANY, OMPI, MPICH, INTEL)),
        *((one, "python -x", "python", "is not an option") for one in (ANY, OMPI, MPICH, INTEL)),
        *((one, "-l : -n 1 a", ":", "second program") for one in (ANY, MPICH, INTEL)),
        (OMPI, "-x A : b", ":", "second program"),
        (OMPI, "-x A b.out", "b.out", "is not an option"),
        (OMPI, "--mca a b c", "c", "is not an option"),
        (OMPI, "--report-bindings python", "python", "is not an option"),
        (OMPI, "--bind-to core python", "python", "is not an option"),
        (OMPI, "-c 2", "-c 2", RANKS),
        (OMPI, "--n 2", "--n 2", RANKS),
        (ANY, "-c 2", "-c 2", RANKS),
        (OMPI, "-H a", "-H a", HOSTS),
        (OMPI, "-rf ranks", "-rf ranks", HOSTS),
        (OMPI, "-nolocal", "-nolocal", HOSTS),
        (OMPI, "-N 1", "-N 1", EACH),
        (OMPI, "--npernode 4", "--npernode 4", EACH),
        (OMPI, "-pernode", "-pernode", EACH),
        (OMPI, "--map-by ppr:4:node", "--map-by ppr:4:node", EACH),
        (OMPI, "--map-by PPR:1:NODE:PE=2", "--map-by PPR:1:NODE:PE=2", EACH),
        (OMPI, "--ppr 1:node", "--ppr 1:node", EACH),
        (OMPI, "--app file", "--app file", "names programs"),
        (MPICH, "-ppn 1", "-ppn 1", EACH),
        (MPICH, "-N 2", "-N 2", RANKS),
        (MPICH, "--np=2", "--np=2", RANKS),
        (MPICH, "-f hosts", "-f hosts", HOSTS),
        (MPICH, "-hosts a,b", "-hosts a,b", HOSTS),
        (MPICH, "-configfile f", "-configfile f", "names programs"),
        (MPICH, "-genv A B python", "python", "is not an option"),
        (MPICH, "-genv A=B python", "python", "is not an option"),
        (INTEL, "-perhost 4", "-perhost 4", EACH),
        (INTEL, "-f hosts", "-f hosts", HOSTS),
        (INTEL, "-hosts-group a[1-2]", "-hosts-group a[1-2]", HOSTS),
        (ANY, "-f hosts", "-f hosts", HOSTS),
        (ANY, "-ppn 1", "-ppn 1", EACH),
        (ANY, "-perhost 1", "-perhost 1", EACH),
    ],
)
def test_what_contradicts_the_plan_is_refused_by_name(
    flavour: str | None, args: str, value: str, problem: str
) -> None:
    with pytest.raises(InputError) as caught:
        check_mpirun_args("ranklift.mpirun_args", args.split(), flavour, [2, 2])
    assert (caught.value.key, caught.value.value) == ("ranklift.mpirun_args", value)
    assert problem in caught.value.problem


def test_nodes_with_numbers_of_their_own_have_no_number_on_each() -> None:
    with pytest.raises(InputError, match="the job has 1 to 2 ranks on each node"):
        check_mpirun_args("mpi_args", ["-N", "2"], OMPI, [2, 1])
    check_mpirun_args("mpi_args", ["-np", "3"], OMPI, [2, 1])


def test_a_plan_counts_the_ranks_of_its_nodes() -> None:
    nodes = [JobNode("a", "10.0.0.4", 4), JobNode("b", "10.0.0.5", 2)]

    def lines(args: tuple[str, ...], each: int | None) -> int:
        spec = JobSpec("t", "mpi", ("a.out",), processes_per_node=each, mpi_args=args)
        return len(Mpi().mpirun(spec, nodes, 6, ".ranklift", infiniband=False))

    assert lines(("-np", "6"), None) == lines(("-np", "2"), 1) > 0
    with pytest.raises(InputError, match="mpi_args = '-np 1': the job has 6 ranks"):
        lines(("-np", "1"), None)
