"""Which MPI a node has."""
