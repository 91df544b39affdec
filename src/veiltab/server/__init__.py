"""The server as an HTTP service: who may ask what, and the jobs that run behind it."""
