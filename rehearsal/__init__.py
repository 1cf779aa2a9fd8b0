"""Azure on this machine: its API, its provider for Pulumi, its VMs, network and load balancer."""
