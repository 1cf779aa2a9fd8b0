"""What the operator's machine asks of a job's head: submit, follow, list, wait, cancel."""
