"""What runs inside Ray pods; this service only hands out its text."""
