"""`pause`, `resume`, `promote`, `abort`, `retry`, `undo`, `history`: the control of an upgrade."""
