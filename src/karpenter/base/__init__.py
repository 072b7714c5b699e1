"""The ground everything stands on: time, randomness, quantities, durations, cron, selectors, metrics."""
