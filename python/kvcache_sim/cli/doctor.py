"""``kvsim doctor``: checks of the installation."""

from __future__ import annotations

from kvcache_sim.base.errors import EXIT_OK, EXIT_USAGE
from kvcache_sim.cli.verb import verb_app

app = verb_app()


@app.command()
def doctor() -> int:
    """Check the native module, versions, cores, space for temporary files and conflicting packages.

    \b
    Example:
      kvsim doctor
    """
    from kvcache_sim.report.installation import check_installation

    findings = check_installation()
    for finding in findings:
        print(f"{finding.verdict:<8} {finding.what:<16} {finding.detail}")
    return EXIT_USAGE if any(finding.verdict == "broken" for finding in findings) else EXIT_OK
