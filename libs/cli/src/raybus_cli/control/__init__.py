"""`pause`, `resume`, `promote`, `abort`, `retry`, `undo`, `history`: what a user does about an upgrade."""
