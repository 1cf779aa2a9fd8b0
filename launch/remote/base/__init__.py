"""What the supervisor, the runners and the operator's side share: frames, names, job folders."""
