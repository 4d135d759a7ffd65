"""Administration over HTTP: routes, ATOM documents, and the commands they become."""
