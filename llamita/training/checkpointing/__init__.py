"""Checkpoints to resume from: copied, written beside the loop, whole or not there, restored."""
