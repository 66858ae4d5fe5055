"""Runs raybus on the oldest and newest versions of what it depends on."""
