"""What outsiders are told of an upgrade: pure, from the observation and the status alone, so that a repetition is the same.

Two kinds of events, by what makes them past. A step of traffic-manager is told before the status shows it, for it waits with the
next one until then (`steps`). What the status says itself is told once it is written, and again by each new process as long as
it is said; whatever the status is about to forget was told before (`standing`). What ends with an object is told before it goes
(`ends`). So nobody needs a record of what was told, and a death at any moment costs at most a repetition.
"""
