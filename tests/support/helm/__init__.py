"""The Helm chart's templates, made from the overlay `production`: `chart` says what a value decides, `markers` writes it down."""
