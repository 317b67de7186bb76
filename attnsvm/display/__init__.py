"""What a user sees of the library: results at a glance, and what is going on."""
