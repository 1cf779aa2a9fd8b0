"""A job's files on the operator's machine: find the missing ones, fetch them, keep them."""
