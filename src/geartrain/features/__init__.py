"""Features: what is known of tasks, prompts, policies and sources as of a time, and who is given it.

`history` makes them from episodes, `tables` keeps them with two times, `store` is Feast, `frames` is what a stage
trains on. The definitions lie in `data/feature_repo`.
"""
