"""Azure's management API as the project uses it: clients, questions, what refusals mean."""
