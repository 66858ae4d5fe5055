"""The state machine of an upgrade in steps; only this package decides weights and capacities.

Source: spec rayservice §8.2-8.5 and §8.7, with the guards of §8.10. Every decision is an absolute
value with its reason, so a decision that is carried out twice does no harm.
"""
