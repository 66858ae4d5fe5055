"""Posts upgrade events to webhooks: Slack, Slack-compatible receivers, and any HTTP receiver."""
