"""The other ways to run one command on many nodes, each as the command a user would type."""
