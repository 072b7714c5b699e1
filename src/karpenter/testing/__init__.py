"""A kit for tests: builders, fakes, an expect vocabulary."""
