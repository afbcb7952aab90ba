from orchestrator.host.commands import extend_path

extend_path()  # for `ip` and `tc`, which the benchmarks start directly
