"""How this machine reaches the package registries, for a root that knows nothing of them yet."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

__all__ = ["environment", "host_files"]

PREFIXES = ("PIP_", "UV_", "NPM_CONFIG_", "SSL_CERT_")
CERTIFICATES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
GO = ("GOPROXY", "GONOPROXY", "GOPRIVATE", "GOSUMDB", "GONOSUMDB", "GOINSECURE")
ENDS = ("_PROXY",)
IN_ETC = ("pip.conf", "uv", "npmrc", "resolv.conf", "hosts")
IN_APT = ("apt.conf", "apt.conf.d", "auth.conf", "auth.conf.d", "keyrings")
ELSEWHERE = ("/usr/etc/npmrc", "/usr/local/share/ca-certificates")
IN_HOME = (".npmrc", ".config/go/env", ".config/pip", ".pip", ".config/uv")
BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
"""The one file of certificates that is not copied: the set-up has to install it."""
FOLDERS = tuple(f"{tool}_{what}" for tool in ("PIP", "UV") for what in ("CACHE_DIR", "FIND_LINKS"))
"""Variables of what lies on this machine, which the root is not to see."""


def environment() -> dict[str, str]:
    """Return the variables by which pip, uv, npm and Go are set up here, without those that name folders."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.upper() in CERTIFICATES + GO
        or name.upper().startswith(PREFIXES)
        or name.upper().endswith(ENDS)
        if name not in FOLDERS
    }


def host_files() -> dict[str, Path]:
    """Return what to copy from this machine, by where it lies in the root.

    The home folder is that of the user database: ``HOME`` is a test's own.
    """
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    found = {f"etc/{name}": Path("/etc") / name for name in IN_ETC}
    found |= {f"etc/apt/{name}": Path("/etc/apt") / name for name in IN_APT}
    found |= {name.lstrip("/"): Path(name) for name in ELSEWHERE}
    found |= {f"root/{name}": home / name for name in IN_HOME}
    named = [Path(value) for name, value in environment().items() if "CERT" in name or "BUNDLE" in name]
    found |= {str(path).lstrip("/"): path for path in named if path.is_file() and path != BUNDLE}
    return {inside: path for inside, path in found.items() if os.access(path, os.R_OK)}
