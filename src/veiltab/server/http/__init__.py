"""Requests: connections, who sends them, routes and answers."""
