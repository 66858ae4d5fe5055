"""The Helm chart's templates, made from the overlay `production`: `chart` defines what a value decides, `markers` writes it down."""
