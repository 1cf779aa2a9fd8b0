"""The operator's calls to a job's head: submit, follow, list, wait, cancel."""
