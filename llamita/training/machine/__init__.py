"""The machine a run is on: its number formats, the order of its sums, its speed and its disk."""
