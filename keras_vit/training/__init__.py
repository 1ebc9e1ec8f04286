"""Mechanisms of training: the official optimizer, schedules, and what makes a run resume."""
