"""All time limits of a job, in seconds, and the options of all its ssh clients.

A limit that depends on another one is derived from it: a larger ``NODE_SILENT_S`` makes ssh, the runners, a
push, a collect and the operator wait longer as well. Intervals at which a file or a process is polled are not
limits and are defined where they are used, as are the agent's limits with Azure's metadata service.

Ranks import this module: it imports nothing.
"""

from __future__ import annotations

__all__ = ["ssh_options"]

# ---- signs of life between supervisor and runners ----

NODE_SILENT_S = 12.0
"""Silence of a runner after which its node counts as lost. Including the end of the other ranks and a last
query to the node, the job ends, and its user is informed, within 20."""
BEAT_S = NODE_SILENT_S / 3
"""Interval of signs of life, either way: two may be late before the node counts as lost."""
GRANT_S = NODE_SILENT_S / 2
"""The runner waits as long for the node's agent to grant its job the identity, and sends no beat then."""
TETHER_S = 2.5 * NODE_SILENT_S
"""Silence of the supervisor after which a runner ends its ranks by itself. Longer than the supervisor waits
for a runner: the side that can report the reason decides first."""

SAMPLE_AGE_S = 1.0
"""Age that a node's newest sample has at most when it is read on the head, at any time."""
SAMPLE_S = 0.6 * SAMPLE_AGE_S
"""Interval of a runner's samples."""
SAMPLE_WRITE_S = 0.2 * SAMPLE_AGE_S
"""Shortest time between two versions of the newest samples on the head. What this and the interval leave of
the age is for the way to the head, and for a runner and a head that have more to do."""
SAMPLE_BEGIN_S = 1.0
"""Time from the ranks' start until the first sample is prepared: a short job has none."""
SAMPLE_FIRST_S = 0.25
"""Time from there to the first sample, whose rates are since then."""
SAMPLE_GPUS_S = 5.0
"""Time from there to the start of the process that queries GPUs: a short job loads no driver for it."""

FIRST_STATE_S = 60.0
"""Age of a job's plan on its head from which a missing state means that no supervisor started: one writes its
first state within a second, more under load."""

# ---- ssh ----

_SSH_ALIVE_COUNT = 3
"""Unanswered keepalives after which an ssh client gives up: OpenSSH's default, so most commands omit it."""
_SSH_LATER_S = 3.0
SSH_ALIVE_S = int(-(-(NODE_SILENT_S + _SSH_LATER_S) // _SSH_ALIVE_COUNT))
"""Interval of an ssh client's keepalives to a silent sshd, in whole seconds."""
SSH_SILENT_S = float(SSH_ALIVE_S * _SSH_ALIVE_COUNT)
"""Silence after which an ssh client gives up a node: later than the supervisor, whose error names the node
and the limit."""
SSH_CONNECT_S = 10
"""Limit for an ssh client inside the cluster to connect."""
SSH_CONNECT_LOST_S = 3
"""Limit to connect to a lost node: its ranks end by themselves, so the job's end does not wait for it."""
AGENT_CONNECT_S = 5
"""Limit for one node's agent to connect to another's, only to check that it is up."""
OPERATOR_CONNECT_S = 15
"""Limit for each stage of a connection from the operator: TCP, banner and key exchange, authentication."""
OPERATOR_SILENT_S = SSH_SILENT_S
"""Silence of a node after which the operator's side sends a keepalive; the node has as long to answer. Not
shorter than inside the cluster: the operator tolerates what the head tolerates."""

_PUSH_CIPHERS = "aes128-gcm@openssh.com,aes256-gcm@openssh.com,chacha20-poly1305@openssh.com,aes128-ctr"
"""Ciphers, the cheapest first: inside the cluster the cipher is most of a push's work."""


def ssh_options(connect_s: int = SSH_CONNECT_S) -> tuple[str, ...]:
    """Return the options of every ssh client inside the cluster."""
    limits = (f"ConnectTimeout={connect_s}", f"ServerAliveInterval={SSH_ALIVE_S}")
    return ("-o", "BatchMode=yes", "-o", limits[0], "-o", limits[1])


PUSH_SSH = (
    *("ssh", "-T", *ssh_options(), "-o", f"ServerAliveCountMax={_SSH_ALIVE_COUNT}"),
    *("-o", "Compression=no", "-o", f"Ciphers={_PUSH_CIPHERS}"),
)
"""ssh command of a push from one node to another, to which address and command are appended."""
OPERATOR_SSH = {
    "ConnectTimeout": f"{OPERATOR_CONNECT_S}",
    "ServerAliveInterval": f"{OPERATOR_SILENT_S:g}",
}
"""Time limits in the ssh_config of a stack's folder."""

# ---- the start of a job ----

START_BASE_S, START_PER_NODE_S = 60.0, 0.5
"""Limit of the start barrier, for every runner to be ready: base, and more per node."""
HELLO_S = 10.0
"""Limit from a runner's connection to its HELLO."""
UNFIT_TOGETHER_S = SSH_CONNECT_S + 2.0
"""Wait after the first unfit node for others, to report all in one error: an ssh client needs
``SSH_CONNECT_S`` to report a silent node."""
NODES_ANSWER_S = SSH_CONNECT_S + 2.0
"""Limit for all nodes at once to report their slots or to end a job's leftovers; ssh gives up before."""
MPI_ANSWER_S = 2.0 * SSH_CONNECT_S
"""Limit for a node to report its MPI: a connection, and as long again for the search."""
MPI_LOOK_S = 20
"""Limit for one command of the search for MPI, such as ``module load``."""
MPI_START_S = 10.0
"""Limit for one rank to start and end, by which an environment module's MPI shows that it starts."""
NVML_S = 40.0
"""Limit for NVML to answer, where it is loaded. It takes 30 s with eight A100, where the driver unloads with
its last program (Azure/aks-gpu#105)."""
LOOK_S = NVML_S + 5.0
"""Limit for a look at a node's devices, within the start barrier's. It takes 2 s at most where its processors
are free and NVML answers."""
LOOK_KILLED_S = 1.0
"""Wait after SIGKILL to a look: a process that hangs in a driver does not end."""
MODULES_S = 60.0
"""Limit for a node's Python to find the modules that a job requires."""
PROBE_STILL_S = 60.0
"""Time after which a probe whose processes neither print nor use their processors is ended."""
PROBE_S = 5.0 * PROBE_STILL_S
"""Limit for a probe whose processes move: on a busy machine, or from a slow disk, an import takes minutes."""
PROBE_SAMPLE_S = 5.0 * SAMPLE_AGE_S
"""Age of the newest sample from which nobody knows whether the probe's processes move."""
CONTAINER_S = 30.0
"""Limit for one command of a container runtime that starts no rank, and loads no image."""
CONNECT_AGAIN_S = 0.2
"""Pause of a runner before it connects again, when the supervisor closed a connection unanswered."""
RESTART_PAUSE_S = 1.0
"""Pause from the end of a launch to a restart, in which the ranks' peers close their connections."""
BUSY_PAUSE_S = 2.0
"""Mean pause between queries to nodes whose slots another head's job holds."""

# ---- a look at a hanging job ----

DEBUG_SPAN_S = 2.0
"""Time between the first look at a rank and the last."""
DEBUG_STACK_S = 2.0
"""Limit for one process's stacks: they take some 20 ms where the processors are free."""
DEBUG_RECORD_S = 8.0
"""Limit for the files of flight recorders, from the request for them: PyTorch 2.11 needs 4.1 to 5.6 s."""
DEBUG_CHILD_S = 3.0 * DEBUG_SPAN_S + DEBUG_RECORD_S
"""Limit for a node to look at its ranks; what is not known by then is left out. Without a flight recorder a
look ends earlier."""
DEBUG_LATE_S = 2.0
"""Wait beyond that limit, after which a runner kills the process that looks."""
DEBUG_ANSWER_S = DEBUG_CHILD_S + DEBUG_LATE_S + 1.5
"""Limit for the reports of all nodes; the verdict names those that have not come."""
DEBUG_UNHEARD_S = 1.5 * BEAT_S
"""Silence of a runner, which sends a beat every BEAT_S, after which its report is not waited for."""
DEBUG_STEP_S = DEBUG_ANSWER_S + 3.0
"""Limit for the head's answer to ``debug``: a supervisor looks for requests several times a second."""
DEBUG_PIECE, DEBUG_PIECES = 48 << 10, 4
"""Bytes of one frame of a report, and number of frames at most."""

# ---- the end of a job ----

GRACE_S = 3.0
"""Grace, the time between SIGTERM and SIGKILL, unless the job sets another."""
CANCEL_GRACE_S = 10.0
"""Grace in a cancel, where the job's own grace is unknown."""
ABORT_GRACE_S = 0.7
"""Grace after a signal to the runner itself: 1 s after its SIGTERM mpirun ends, and with it what its ranks
are connected to."""
LEFTOVER_GRACE_S = 0.5
"""Wait after SIGTERM to processes that outlive their rank."""
LONGEST_GRACE_S = 600.0
"""Longest wait for the end of a job's processes, whatever the job's grace."""
UNKILLABLE_S = 5.0
"""Wait after SIGKILL until a process counts as unkillable (stuck in the kernel)."""
LATE_OUTPUT_S = 0.3
"""Wait for output after the end of a rank's last process."""
EARLIER_FAILURE_S = 0.2
"""Wait after the first report of a failure, in which an earlier failure may be reported."""
SSH_LAST_WORDS_S = 0.2
"""Wait for an ssh client to report why it ends."""
SSH_CLOSE_S = 4.0
"""Wait for an ssh client to end by itself."""
UNORDERED_END_S = 4.0
"""Wait after a runner has ended a rank without the supervisor's order: mpirun may have had a reason, which it
reports, or the rank at fault does."""
WITHOUT_MPIRUN_S = 2.0
"""Wait for runners to report their ranks' ends once mpirun is gone."""
RUNNER_END_S = 4.0
"""Wait after the grace until runners that have not reported their end are cut off."""
MPIRUN_EXIT_S = 10.0
"""Wait for mpirun to exit by itself once every rank has ended: a stranger's connection to one of mpirun's
ports can keep it for ever (seen with Open MPI 4.1.4)."""
MPIRUN_END_S = 4.0
"""Wait for mpirun to end after the last runner; mpirun is slow after an MPI_Abort."""
SUPERVISOR_END_S = RUNNER_END_S + 2 * MPIRUN_END_S + NODES_ANSWER_S + 6.0
"""Longest time, beside the grace, in which a supervisor ends a job: runners, mpirun twice, a last query to
silent nodes, its records."""
SUPERVISOR_KILL_S = 4.0
"""Wait after SIGKILL to a supervisor."""
SLOTS_FREE_S = 1.0
"""Wait for a runner to see that its ranks have ended."""

EVICTION_LEAST_S = 20.0
"""Minimum grace on a node that Azure takes, as far as time allows, so that ranks can write a checkpoint."""
EVICTION_SPARE_S = 10.0
"""Reserve between the end of the ranks' grace and the deadline, where jobs may go on for a while."""
EVICTION_OVER_S = 5.0
"""Time before the node's end from which no process of a job runs any more."""
EVICTION_SHORTEST_S = 0.5

# ---- the operator ----

FOLLOW_BEAT_S = OPERATOR_SILENT_S / 3
"""Interval of signs of life from a followed head without output."""
WATCH_BEAT_S = 1.0
"""Interval of signs of life from a head whose samples are watched: each is the screen's newest."""
WATCH_SILENT_S = 3 * WATCH_BEAT_S
"""Silence of a watched head from which the screen shows it: two signs of life may be late."""
WATCH_AGAIN_S = 10 * WATCH_BEAT_S
"""Silence of a watched head after which a new connection is made: the process there may be stopped."""
STEP_S = 60.0
"""Limit for one query to a head."""
CANCEL_ANSWER_S = 20.0
"""Limit for a head's answer to one cancel request, which the operator's side repeats."""
CANCEL_STEP_S = 2 * CANCEL_ANSWER_S + 5.0
"""Limit for one cancel request with its connection."""
SWEEP_STEP_S = 60.0
"""Limit, beside the grace, to end a job's leftovers on a node."""
HEAD_GONE_S = 4 * TETHER_S
"""Silence after which a job's head is given up: well after the job's ranks have ended by themselves."""
ASK_AGAIN_S = 2.0
"""Pause between queries to a head that does not answer."""

# ---- push and collect ----

PUSH_BEAT_S = 2.0
"""Interval of signs of life from a node up a push's tree."""
PUSH_SILENT_S = SSH_SILENT_S + SSH_ALIVE_S
"""Silence up the tree after which a node is given up. One keepalive longer than ssh waits, because ssh's
message is the reason that the user reads."""
PUSH_CONNECT_S = 15.0
"""Limit to connect two nodes for file contents."""
PUSH_STALL_S = 3 * PUSH_SILENT_S
"""Limit for a stalled connection: a silent child is given up first."""
PUSH_STEP_S = 600.0
"""Limit for each call of a push, on either side."""
COLLECT_BEAT_S = 5.0
"""Interval of signs of life from a node that lists or reads files."""
COLLECT_SILENT_S = 4 * SSH_SILENT_S
"""Silence after which a node is left out of a collect; ssh gives up before."""
COLLECT_LISTING_S = 600.0
"""Limit for the list of a job's files on all nodes."""

ENVIRONMENT_S = 7200.0
"""Limit for a head to make an environment and to spread it."""
ENVIRONMENT_REPORT_S = 2.0
"""Interval of reports about a tool that makes an environment."""

REGISTRY_SILENT_S = 30.0
"""Silence of a container registry after which its connection is given up."""

STAGE_S = 86400.0
"""Limit for the nodes of a job to get its data."""
STORAGE_SILENT_S = 30.0
"""Silence of a storage service after which its connection is given up."""
PEER_SILENT_S = PUSH_SILENT_S
"""Silence of another node after which a part is taken from elsewhere: as long as its head waits for it."""

# ---- agents ----

AGENT_ANSWER_S = SSH_SILENT_S + AGENT_CONNECT_S
"""Limit for the agents of other nodes to answer, queried at once; ssh gives up before."""
