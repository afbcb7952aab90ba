"""The results of a run in the forms of other tools: tables as files, and scalars for TensorBoard and MLflow."""
