"""Block formats as numbers. Import from the modules: this one loads nothing."""
