"""How results are printed: tables and trees for people, JSON and YAML for programs."""
