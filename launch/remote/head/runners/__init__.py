"""The runners of one launch: how they start, their channels, mpirun, and what launchers print."""
