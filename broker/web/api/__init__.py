"""The JSON API below `/api/v1/`: what the command line shows of a store, for the page and for programs."""
