"""Every time limit of a job's path, and the options of every ssh client on it, in one place.

A limit that depends on another one is derived from it: a larger ``NODE_SILENT_S`` makes ssh, the runners, a
push, a collect and the operator wait longer as well. Pauses between two looks at a file or a process are not
limits and stand where they are used; so do the agent's with Azure's metadata service.

Ranks import this module: it imports nothing.
"""

from __future__ import annotations

__all__ = ["ssh_options"]

# ---- signs of life between supervisor and runners ----

NODE_SILENT_S = 12.0
"""Without any byte from a runner after which its node counts as lost. With the end of the other ranks and a
last look at the node the job has ended, and its user knows, within 20."""
BEAT_S = NODE_SILENT_S / 3
"""Between signs of life, either way: two may be late before the node counts as lost."""
TETHER_S = 2.5 * NODE_SILENT_S
"""Without any byte from the supervisor after which a runner ends its ranks by itself. Longer than the
supervisor waits for a runner: the side that can report the reason decides first."""

# ---- ssh ----

_SSH_ALIVE_COUNT = 3
"""Unanswered questions after which an ssh client gives up: OpenSSH's default, so it is not on every line."""
_SSH_LATER_S = 3.0
SSH_ALIVE_S = int(-(-(NODE_SILENT_S + _SSH_LATER_S) // _SSH_ALIVE_COUNT))
"""Between an ssh client's questions to a silent sshd, in whole seconds."""
SSH_SILENT_S = float(SSH_ALIVE_S * _SSH_ALIVE_COUNT)
"""After which an ssh client gives up on a silent node: later than the supervisor does, whose error names the
node and the limit."""
SSH_CONNECT_S = 10
"""For an ssh client inside the cluster to connect."""
SSH_CONNECT_LOST_S = 3
"""The same to a node that is lost: its ranks end by themselves, and the job's end does not wait for it."""
AGENT_CONNECT_S = 5
"""The same from one node's agent to another's, which is asked only whether it is there."""
OPERATOR_CONNECT_S = 15
"""Each stage of connecting from the operator's machine: TCP, banner and key exchange, authentication."""
OPERATOR_SILENT_S = SSH_SILENT_S
"""Without any byte from a node after which the operator's side asks whether it is there; the node has as long
to answer. No shorter than inside the cluster: what the head tolerates, the operator does."""

_PUSH_CIPHERS = "aes128-gcm@openssh.com,aes256-gcm@openssh.com,chacha20-poly1305@openssh.com,aes128-ctr"
"""The cheapest first: inside the cluster the cipher is most of a push's work."""


def ssh_options(connect_s: int = SSH_CONNECT_S) -> tuple[str, ...]:
    """Return the options that every ssh client inside the cluster has."""
    limits = (f"ConnectTimeout={connect_s}", f"ServerAliveInterval={SSH_ALIVE_S}")
    return ("-o", "BatchMode=yes", "-o", limits[0], "-o", limits[1])


PUSH_SSH = (
    *("ssh", "-T", *ssh_options(), "-o", f"ServerAliveCountMax={_SSH_ALIVE_COUNT}"),
    *("-o", "Compression=no", "-o", f"Ciphers={_PUSH_CIPHERS}"),
)
"""How a push goes from one node to another; addresses and a command are appended."""
OPERATOR_SSH = {
    "ConnectTimeout": f"{OPERATOR_CONNECT_S}",
    "ServerAliveInterval": f"{OPERATOR_SILENT_S:g}",
}
"""Limits in the ssh_config of a stack's folder."""

# ---- the start of a job ----

START_BASE_S, START_PER_NODE_S = 60.0, 0.5
"""For every runner to be ready: start barrier."""
HELLO_S = 10.0
"""From a runner's connection to its HELLO."""
UNFIT_TOGETHER_S = SSH_CONNECT_S + 2.0
"""After the first unfit node, in which others may join it in the one error: an ssh client to a silent one
needs ``SSH_CONNECT_S`` to report it."""
NODES_ANSWER_S = SSH_CONNECT_S + 2.0
"""For all nodes that are asked at once, for their slots or to end what a job left; ssh gives up before."""
MPI_ANSWER_S = 2.0 * SSH_CONNECT_S
"""For a node to report which MPI it has: a connection, and as long again to look."""
MPI_LOOK_S = 20
"""For one command of the search for MPI, like ``module load``."""
MODULES_S = 60.0
"""For a node's Python to look for the modules that a job requires."""
CONNECT_AGAIN_S = 0.2
"""From a connection that the supervisor closed before it answered to a runner's next."""
RESTART_PAUSE_S = 1.0
"""From the end of a launch to a restart: what the ranks talked to closes its connections."""
BUSY_PAUSE_S = 2.0
"""Between questions to nodes whose slots another head's job holds, on average."""

# ---- the end of a job ----

GRACE_S = 3.0
"""Between SIGTERM and SIGKILL where the job says nothing else."""
CANCEL_GRACE_S = 10.0
"""The same in a cancel, where the job's own grace is unknown."""
ABORT_GRACE_S = 0.7
"""The same when a signal to the runner itself is the reason: mpirun's own SIGKILL comes 1 s after its SIGTERM
and would leave the ranks' orphans behind."""
LEFTOVER_GRACE_S = 0.5
"""The same for processes that outlive their rank."""
LONGEST_GRACE_S = 600.0
"""For processes of a job that ends, whatever its grace is."""
UNKILLABLE_S = 5.0
"""After SIGKILL until a process counts as unkillable (stuck in the kernel)."""
LATE_OUTPUT_S = 0.3
"""For output after a rank's last process ended."""
EARLIER_FAILURE_S = 0.2
"""After the first report of a failure, in which one that came before it may be reported."""
SSH_LAST_WORDS_S = 0.2
"""For an ssh client to report why it ends."""
SSH_CLOSE_S = 4.0
"""For an ssh client to end by itself."""
WITHOUT_MPIRUN_S = 2.0
"""For runners to report their ranks' ends once mpirun is gone."""
RUNNER_END_S = 4.0
"""After the grace until runners that have not reported their end are cut off."""
MPIRUN_EXIT_S = 10.0
"""For mpirun to exit by itself once every rank has ended: a stranger's connection to one of its own ports can
keep it for ever (seen with Open MPI 4.1.4)."""
MPIRUN_END_S = 4.0
"""For mpirun to end after the last runner; it takes its time after an MPI_Abort."""
SUPERVISOR_END_S = RUNNER_END_S + 2 * MPIRUN_END_S + NODES_ANSWER_S + 6.0
"""Beside the grace, that a supervisor needs at most to end a job: runners, mpirun twice, a last look at
silent nodes, its records."""
SUPERVISOR_KILL_S = 4.0
"""After SIGKILL to a supervisor."""
SLOTS_FREE_S = 1.0
"""For a runner to see that its ranks have ended."""

EVICTION_LEAST_S = 20.0
"""For ranks on a node that Azure takes, as far as there is time: they write a checkpoint in it."""
EVICTION_SPARE_S = 10.0
"""Where jobs may go on for a while: what is left when the ranks' time is over."""
EVICTION_OVER_S = 5.0
"""Before the end of the node at which nothing of a job runs any more."""
EVICTION_SHORTEST_S = 0.5

# ---- the operator ----

FOLLOW_BEAT_S = OPERATOR_SILENT_S / 3
"""Between signs of life of a head that is followed and has no output."""
STEP_S = 60.0
"""For one question to a head."""
CANCEL_ANSWER_S = 20.0
"""For a head's answer to one request for a job's end; whoever asks repeats it."""
CANCEL_STEP_S = 2 * CANCEL_ANSWER_S + 5.0
"""For one such request with its connection."""
SWEEP_STEP_S = 60.0
"""Beside the grace, for ending what a job left on a node."""
HEAD_GONE_S = 4 * TETHER_S
"""Without an answer from a job's head until it is given up: well after its ranks have ended by themselves."""
ASK_AGAIN_S = 2.0
"""Between two questions to a head that does not answer."""

# ---- push and collect ----

PUSH_BEAT_S = 2.0
"""Between signs of life from a node up a push's tree."""
PUSH_SILENT_S = SSH_SILENT_S + SSH_ALIVE_S
"""Without any up the tree after which a node is given up. One question longer than ssh waits: ssh's words are
the reason that the user reads."""
PUSH_CONNECT_S = 15.0
"""For the connection for file contents between two nodes."""
PUSH_STALL_S = 3 * PUSH_SILENT_S
"""For a connection that takes or brings nothing: a child that is silent is given up first."""
PUSH_STEP_S = 600.0
"""For each call of a push, on either side."""
COLLECT_BEAT_S = 5.0
"""Between signs of life from a node that looks for files."""
COLLECT_SILENT_S = 4 * SSH_SILENT_S
"""Without any after which a node is left out of a collect: ssh gives up before."""
COLLECT_LISTING_S = 600.0
"""For the list of a job's files on all nodes."""

# ---- agents ----

AGENT_ANSWER_S = SSH_SILENT_S + AGENT_CONNECT_S
"""For the agents of other nodes that are asked at once; ssh gives up before."""
