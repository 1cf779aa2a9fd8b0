"""Code shared by the supervisor, the runners and the operator's side: frames, names, job folders."""
