"""Azure Resource Manager on this machine: its HTTP endpoint over an in-memory subscription."""
