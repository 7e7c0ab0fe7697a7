"""Namespaces of a campaign's own, in which its mounts and processes end with it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

_ENTERED = "CHAOS_NAMESPACES"


def enter(*kinds: str, tools: Sequence[str] = ()) -> bool:
    """Start this program again in new mount and process namespaces, and in ``kinds`` of more.

    Returns True inside of them, and False where the system does not grant them or lacks one of
    ``tools``.
    """
    if os.environ.get(_ENTERED):
        return True
    own_user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    options = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    unshare = ["unshare", *own_user, *kinds, *options]
    if not all(shutil.which(tool) for tool in ("unshare", "mount", "umount", *tools)):
        return False
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode != 0:
        return False
    # A shell is the namespace's first process, because it reaps orphans: Ray takes a zombie for a
    # living raylet.
    shell = ["sh", "-c", '"$@"; exit $?', "sh", sys.executable, *sys.orig_argv[1:]]
    return os.execvpe(unshare[0], [*unshare, *shell], {**os.environ, _ENTERED: "1"})
