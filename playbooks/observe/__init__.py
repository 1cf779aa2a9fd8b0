"""Tasks that show operators what runs and what ran: nodes and ranks, phases, scaling, and why a job hangs."""
