"""The objects that this service owns, and its part of a user's route; all pure."""
