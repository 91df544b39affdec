"""The parties' side of the network: requests to a server, and a home directory per identity."""
