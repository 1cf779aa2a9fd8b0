"""Set-up, the demo and what it proves itself with: commands, run by make."""
