"""The upgrade events for external consumers: pure, from the observation and the status alone, so that a repetition is the same.

Events are published in this order. A step of traffic-manager comes before the status shows it, for it waits with the next one
until then (`steps`). The state in the status comes once it is written, and again by each new process as long as it holds; what the
status is about to forget comes before (`current`). What ends with an object comes before its deletion (`ends`). So no record of
published events is needed, and a crash at any moment costs at most a repetition.
"""
