"""Data of jobs: brought once from storage to all nodes, which pass the parts on to each other."""
