"""What a run tells while it goes on: its manifest, its metrics, and whoever watches it."""
