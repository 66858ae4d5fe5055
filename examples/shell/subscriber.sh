#!/bin/sh
# Hands each of raybus' events to a command, in order; needs the nats CLI (https://github.com/nats-io/natscli).
#
#   RAYBUS_NATS_URL=tls://127.0.0.1:4222 RAYBUS_NATS_CREDENTIALS=DIR ./subscriber.sh jq -r '[.time, .subject, .type] | @tsv'
#
# DIR holds `seed` and `ca.crt` (../README.md describes how to make them), or is the folder that `raybus up --data-dir` writes.
# The server remembers the position of SUBSCRIBER_NAME, also while it is away. The CLI acknowledges an event on receipt, so an
# event with a failed command is not delivered again: it is printed on standard error, and
# `raybus events --replay ID` shows it. For "handled before acknowledged" see ../python.
set -eu

: "${RAYBUS_NATS_URL:?is needed, such as tls://127.0.0.1:4222}"
: "${RAYBUS_NATS_CREDENTIALS:?is needed: a folder with seed and ca.crt}"
name=${SUBSCRIBER_NAME:-shell-example}
filter=${SUBSCRIBER_FILTER:-ray.events.>}   # ray.events.<namespace>.<rayservice>.<kind>
[ $# -gt 0 ] || set -- cat

seed=$RAYBUS_NATS_CREDENTIALS/seed
[ -f "$seed" ] || seed=$RAYBUS_NATS_CREDENTIALS/users/subscriber.seed

ask() {
  nats --server "$RAYBUS_NATS_URL" --nkey "$seed" --tlsca "$RAYBUS_NATS_CREDENTIALS/ca.crt" \
    --inbox-prefix _INBOX_subscriber "$@"
}

subscribe() {
  ask consumer info RAY_EVENTS "$name" >/dev/null 2>&1 ||
    ask consumer add RAY_EVENTS "$name" --pull --deliver all --ack explicit --filter "$filter" \
      --replay instant --max-pending 1 --defaults >/dev/null
}

trap 'exit 0' INT TERM
until subscribe; do sleep 1; done
while :; do
  # No event within the time is no error; a lost server or stream is, and `subscribe` recovers from it.
  event=$(ask consumer next RAY_EVENTS "$name" --raw --timeout 5s 2>/dev/null) || { subscribe || sleep 1; continue; }
  [ -n "$event" ] || continue
  printf '%s\n' "$event" | "$@" || printf 'not handled: %s\n' "$event" >&2
done
