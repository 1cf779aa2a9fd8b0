"""Files and folders of the operator that hold credentials: no command sends them, whoever names them.

A path is compared by device and inode, not by its text: another case on a file system that ignores it,
``..``, links, hard links to a file of the table and bind mounts all lead to the same inode.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from launch.errors import InputError

__all__ = [
    "STACK_FILES",
    "STATE",
    "Credentials",
    "credential_paths",
    "home_folders",
    "is_state",
    "known_credentials",
]

STATE = ".ranklift"
"""The folder of a project's state, which includes the private keys of all nodes."""
STACK_FILES = frozenset({"inventory.json", "id_ed25519"})
"""Files that identify a stack's folder, even where a folder around it was renamed."""
_IN_HOME = (
    *(".ssh", ".gnupg", ".password-store", ".local/share/keyrings", ".local/share/kwalletd"),
    *("Library/Keychains", "Library/Cookies", ".pki", ".putty"),
    *(".azure", ".IdentityService", ".pulumi", ".aws", ".oci", ".bluemix", ".aliyun", ".databrickscfg"),
    *(".config/gcloud", ".config/doctl", ".config/hcloud", ".boto", ".s3cfg", ".config/rclone", ".mc"),
    *(".kube", ".docker/config.json", ".docker/contexts", ".config/containers/auth.json", ".config/helm"),
    *(".config/enroot/.credentials", ".enroot/.credentials"),
    *(".netrc", "_netrc", ".authinfo", ".authinfo.gpg", ".pgpass", ".my.cnf", ".mylogin.cnf", ".fetchmailrc"),
    *(".git-credentials", ".config/git/credentials", ".config/gh", ".config/hub", ".config/glab-cli"),
    *(".pypirc", ".config/pypoetry/auth.toml", ".local/share/uv/credentials", ".pip/pip.conf"),
    *(".config/pip/pip.conf", ".config/uv/uv.toml", ".condarc", ".config/conda", ".continuum", ".rattler"),
    *(
        ".npmrc",
        ".yarnrc",
        ".yarnrc.yml",
        ".cargo/credentials",
        ".cargo/credentials.toml",
        ".gem/credentials",
    ),
    *(
        ".m2/settings.xml",
        ".m2/settings-security.xml",
        ".gradle/gradle.properties",
        ".nuget",
        ".subversion/auth",
    ),
    *(".terraform.d", ".terraformrc", ".vault-token", ".config/sops", ".config/age", ".config/op", ".sops"),
    *(".cache/huggingface/token", ".cache/huggingface/stored_tokens", ".huggingface", ".kaggle", ".jupyter"),
    *(".config/wandb", ".config/ngc", ".ngc", ".comet.config", ".neptune", ".local/share/jupyter/runtime"),
    *(".mozilla", ".thunderbird", ".config/google-chrome", ".config/chromium", ".config/microsoft-edge"),
    *(".config/BraveSoftware", ".config/Bitwarden", ".config/keybase", ".config/1Password"),
    *("Library/Application Support/Google/Chrome", "Library/Application Support/Firefox"),
    *(".bash_history", ".zsh_history", ".python_history", ".local/share/fish/fish_history", ".psql_history"),
    *(".lesshst", ".viminfo", ".node_repl_history", ".sqlite_history", ".mysql_history"),
)
"""Paths in a home folder."""
_NAMED_BY = (
    *("AZURE_CONFIG_DIR", "AZURE_FEDERATED_TOKEN_FILE", "AZURE_CLIENT_CERTIFICATE_PATH"),
    *("ARM_CLIENT_CERTIFICATE_PATH", "ARM_OIDC_TOKEN_FILE_PATH", "PULUMI_HOME", "PULUMI_CREDENTIALS_PATH"),
    *("PULUMI_CONFIG_PASSPHRASE_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"),
    *("AWS_WEB_IDENTITY_TOKEN_FILE", "CLOUDSDK_CONFIG", "GOOGLE_APPLICATION_CREDENTIALS", "BOTO_CONFIG"),
    *("RCLONE_CONFIG", "KUBECONFIG", "REGISTRY_AUTH_FILE", "GNUPGHOME", "NETRC", "PGPASSFILE", "HISTFILE"),
    *("PIP_CONFIG_FILE", "NPM_CONFIG_USERCONFIG", "UV_CREDENTIALS_DIR", "GH_CONFIG_DIR", "HF_TOKEN_PATH"),
    *("KAGGLE_CONFIG_DIR", "TF_CLI_CONFIG_FILE", "SOPS_AGE_KEY_FILE"),
)
"""Variables whose values are such paths, several between colons."""
_BELOW = {"DOCKER_CONFIG": "config.json", "HF_HOME": "token", "CARGO_HOME": "credentials.toml"}
"""Variables that name a folder, and the path below it."""
_OF_THE_MACHINE = (
    *("/etc/shadow", "/etc/gshadow", "/etc/ssh", "/etc/ssl/private", "/etc/krb5.keytab"),
    *("/run/secrets", "/var/lib/cloud", "/var/lib/waagent", "/proc"),
)
"""Paths outside home folders. Processes' environments and memory are in /proc."""


def home_folders(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the user's home folders, resolved: that of ``HOME``, and that of the user database."""
    found = [environ["HOME"]] if environ.get("HOME") else []
    with suppress(KeyError):  # a user whom the database does not know, as in a container
        found.append(pwd.getpwuid(os.getuid()).pw_dir)
    return tuple(dict.fromkeys(Path(os.path.realpath(home)) for home in found))


def credential_paths(environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the paths that the user's credentials may have; most of them do not exist."""
    for home in home_folders(environ):
        yield from (home / name for name in _IN_HOME)
    if config := environ.get("XDG_CONFIG_HOME"):
        yield from (Path(config, name.removeprefix(".config/")) for name in _IN_HOME if ".config/" in name)
    for name, below in (*_BELOW.items(), *((name, "") for name in _NAMED_BY)):
        for text in filter(None, environ.get(name, "").split(os.pathsep)):
            yield Path(text, below)
    yield from map(Path, _OF_THE_MACHINE)


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials that there are."""

    paths: Mapping[tuple[int, int], Path]
    """By device and inode."""
    inodes: frozenset[int]

    def at(self, status: os.stat_result) -> Path | None:
        """Return the path in the table of the file or folder that has this status; None for another one."""
        return self.paths.get((status.st_dev, status.st_ino)) if status.st_ino in self.inodes else None

    def around(self, path: Path) -> Path | None:
        """Return the credentials that a resolved ``path`` is, or lies in; None for another path."""
        for one in (path, *path.parents):
            if is_state(one):
                return one
            with suppress(OSError):
                if found := self.at(one.stat()):
                    return found
        return None

    def within(self, folder: Path) -> Path | None:
        """Return credentials that lie below a resolved ``folder``; None without any."""
        try:
            status = folder.stat()
        except OSError:
            return None
        wanted = (status.st_dev, status.st_ino)
        for credential in self.paths.values():
            for above in Path(os.path.realpath(credential)).parents:
                with suppress(OSError):
                    found = above.stat()
                    if (found.st_dev, found.st_ino) == wanted:
                        return credential
        return None

    def refuse(self, key: str, path: Path, named: Path) -> None:
        """Raise :class:`~launch.errors.InputError` for a resolved path that is, or lies in, credentials;
        ``named`` is that path as it was given."""
        found = self.around(path)
        if found is None:
            return
        if is_state(found):
            problem = f"{found} holds a stack's private keys, which never leave this machine"
        else:
            problem = f"{found} holds credentials of this machine, which never leave it"
        raise InputError(key, str(named), problem, "choose a path outside it")


def known_credentials() -> Credentials:
    """Return the credentials that this machine has for its user now."""
    found: dict[tuple[int, int], Path] = {}
    for path in credential_paths(os.environ):
        with suppress(OSError, ValueError):
            status = path.stat()
            found.setdefault((status.st_dev, status.st_ino), path)
    return Credentials(found, frozenset(inode for _, inode in found))


def is_state(path: Path) -> bool:
    """Return whether ``path`` itself is a project's ``.ranklift`` or the folder of one of its stacks."""
    # some file systems ignore case; os.path's answer for a name that is too long is False
    return path.name.lower() == STATE or all(os.path.exists(path / name) for name in STACK_FILES)  # noqa: PTH110
