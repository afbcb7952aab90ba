"""Code shared by algorithms: data, models, local training, aggregation, privacy, metrics."""
