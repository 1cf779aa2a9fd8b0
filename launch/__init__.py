"""What a job is and how it runs: spec, plan, the operator's client, and what runs on the nodes."""
