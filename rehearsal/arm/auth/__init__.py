"""Authentication and authorization of requests, identities and roles."""
