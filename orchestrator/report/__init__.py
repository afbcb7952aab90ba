"""The report of a run: one self-contained HTML page, which needs no network and no other file."""

from orchestrator.report.page import render, write_report

__all__ = ["render", "write_report"]
