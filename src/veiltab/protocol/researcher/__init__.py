"""The researcher's side: verify contract, release and grants, then decrypt and count."""
