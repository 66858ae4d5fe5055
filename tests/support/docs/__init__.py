"""What docs/reference is written from: the code, and a sentence for each thing that it names; `make golden` writes the pages."""
