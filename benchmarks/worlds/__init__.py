"""Small worlds for benchmarks and experiments, and scripted players of Duel."""
