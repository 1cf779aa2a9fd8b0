"""The container runtimes that can start a job's ranks, one file each, listed in ``container_kinds``.

A runner imports this room only for a job whose plan names one: bare ranks start without it.
"""
