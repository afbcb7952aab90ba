from orchestrator.host.commands import extend_path

extend_path()  # `ip` and `tc`, which benchmarks start themselves
