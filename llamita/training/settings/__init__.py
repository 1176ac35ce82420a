"""What a run is told: the recipe, its defaults, limits and file, and what it leaves open."""
