"""Whether it is so: sampled data, trained attention, and the statistics that compare them with a theory."""
