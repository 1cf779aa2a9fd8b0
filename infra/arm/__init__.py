"""Azure's management API as the project uses it: clients, queries, resource types, errors."""
