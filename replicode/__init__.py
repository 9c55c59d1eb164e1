"""replicode."""
