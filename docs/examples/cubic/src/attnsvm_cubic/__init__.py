"""A head, a data source, a probe, a sweep and a figure for attnsvm."""
