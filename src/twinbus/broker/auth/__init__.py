"""Who may do what: keys, SAS and JWT tokens, rights."""
