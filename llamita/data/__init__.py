"""Token shards on disk: writing them from documents, reading them as training batches."""
