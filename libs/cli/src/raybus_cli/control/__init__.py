"""The commands that control upgrades.

They are `raybus pause`, `resume`, `promote`, `abort`, `retry`, `undo` and `history`.
"""
