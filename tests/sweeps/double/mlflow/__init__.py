"""A double of MLflow: what the callback asks of it, kept in a JSON file."""
