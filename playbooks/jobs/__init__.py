"""What runs on the cluster: launched, followed, listed, ended and collected."""
