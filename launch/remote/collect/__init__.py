"""The transfer of a job's files to the operator, from each node by way of the head."""
