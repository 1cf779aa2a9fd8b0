"""The cluster: the Pulumi program, its checks, and the inventory that the commands read."""
