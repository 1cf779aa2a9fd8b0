"""Jobs and how they run: spec, plan, the operator's client, and what runs on the nodes."""
