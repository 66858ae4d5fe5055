"""Posts upgrade events to webhooks: Slack, what takes the same body, and any other HTTP receiver."""
