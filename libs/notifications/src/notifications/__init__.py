"""Posts events of upgrades and jobs to Slack, to receivers like it, and to any HTTP receiver."""
