"""The state machine of an upgrade in steps. Whatever changes a weight or a capacity is decided here, and nowhere else.

Source: spec rayservice §8.2-8.5 and §8.7 with the guards of §8.10. Every decision is an absolute value with its reason, so that
a step which is taken twice is one step.
"""
