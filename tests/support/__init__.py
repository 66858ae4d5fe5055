"""What tests share: builders, fakes, real servers on port 0, golden files."""
