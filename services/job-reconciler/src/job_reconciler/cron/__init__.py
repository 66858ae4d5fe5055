"""RayCronJobs: schedules, runs that are due, and the plan of one reconcile."""
