"""`lint`: what is wrong with a manifest, and what could be better, before it is applied."""
