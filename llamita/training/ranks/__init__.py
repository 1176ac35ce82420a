"""The processes of one run: how they meet and agree, share weights, and tell an error once."""
