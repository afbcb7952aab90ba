"""What several algorithms share: data, models, local training, aggregation, privacy, metrics."""
