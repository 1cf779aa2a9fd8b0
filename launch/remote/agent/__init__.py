"""The process that every node runs from its first boot: Azure's notices, and the cluster's end."""
