"""What runs on nodes: the supervisor on a job's head and the runners beside its ranks.

The modules are copied to ``~/.ranklift/remote/<hash>/`` and started with
``python3 -I -S <that folder>/__main__.py``; they use the standard library only, run on Python 3.8 and import
nothing outside this package.
"""
