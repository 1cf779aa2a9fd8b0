"""The MPIs that can start a job's ranks, one file each, listed in :mod:`launch.remote.mpi.registry`.

Ranks do not import this room: what their runner must know of the MPI it gets from the head in a variable.
"""
