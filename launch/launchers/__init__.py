"""The ways to start ranks: by mpirun, by PyTorch's own launchers, as TensorFlow's tasks."""
