"""Runs roc-validator without a network: ``python validator.py CONTEXT FOLDER SEVERITY``.

CONTEXT is RO-Crate's JSON-LD context, which the validator would fetch. The interpreter is that of the validator's
environment, which is not edgebed's: the validator needs rich before version 14.
"""

from __future__ import annotations

import sys
from pathlib import Path

from requests import Response
from rocrate_validator import services
from rocrate_validator.utils import document_loader, http

context = Response()
context.status_code, context._content = 200, Path(sys.argv[1]).read_bytes()
context.headers["Content-Type"] = "application/ld+json"
http.HttpRequester.get = lambda *_, **__: context
document_loader._fetch_json_ld = lambda _: context.json()
settings = services.ValidationSettings(
    rocrate_uri=sys.argv[2], profile_identifier="process-run-crate", requirement_severity=sys.argv[3]
)
issues = services.validate(settings).get_issues()
for issue in issues:
    print(f"{issue.check.identifier} {issue.message}")
sys.exit(bool(issues))
