"""Changes of the deciding code that a test must notice."""
