"""What a run begins with and learns from: its DATA, its model, and its teacher.

Each is opened, told apart by content, and checked against the others.
"""
