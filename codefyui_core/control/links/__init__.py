"""The agents: enrollment, admission, one session a worker."""
