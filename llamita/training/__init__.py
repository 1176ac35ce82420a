"""Training a model: a run from its recipe to its last checkpoint.

Here lies the run itself. It is made of the packages below it, from the bottom up: settings,
machine, memory, ranks, records, sources, steps, checkpointing. Above it are planning, which makes
short runs to foretell long ones, and reporting, which reads what runs leave.
"""
