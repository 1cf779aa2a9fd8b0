"""Azure Monitor: workspaces, data collection endpoints and rules, and the metrics that rules take."""
