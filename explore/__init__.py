"""The joint search over hardware and schedules: space, evaluator, journal, front."""
