"""Is the run alive, and is it getting anywhere: readings of a host in, verdict and findings out."""
