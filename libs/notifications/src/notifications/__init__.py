"""Posts events of upgrades and jobs to Slack, to Slack-compatible receivers, and to any webhook."""
