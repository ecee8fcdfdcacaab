"""Known vulnerabilities of what is installed, or a sentence that none could be looked for: `make audit`.

python .ci/audit.py pip-audit DIRECTORY    # of the packages in a site-packages directory

Where its database cannot be reached, pip-audit lists every package as skipped and ends well, as if all were fine.
"""

from __future__ import annotations

import json
import subprocess
import sys


def main(program: str, directory: str) -> int:
    command = [program, "--path", directory, "--format", "json", "--progress-spinner", "off"]
    done = subprocess.run(command, capture_output=True, text=True)  # noqa: S603  # what the Makefile names
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        packages = []
    audited = [package for package in packages if "vulns" in package]
    if not audited:
        print(f"The database of vulnerabilities cannot be reached: none of {len(packages)} packages was audited.")
        print(done.stderr.strip()[-500:] if not packages else packages[0].get("skip_reason", ""))
        return 2
    found = [(package, flaw) for package in audited for flaw in package["vulns"]]
    for package, flaw in found:
        mended = ", ".join(flaw.get("fix_versions", [])) or "no version yet"
        print(f"{package['name']} {package['version']}: {flaw['id']}, mended in {mended}")
    print(f"{len(audited)} of {len(packages)} packages audited, {len(found)} known vulnerabilities.")
    for package in packages:
        if "vulns" not in package:
            print(f"  not audited: {package['name']}: {package.get('skip_reason', '')}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
