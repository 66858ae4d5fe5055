"""Code that two or more services share."""
