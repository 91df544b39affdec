"""A systemd unit for an agent, with as few rights as it can do with."""

from dataclasses import dataclass
from pathlib import Path

_UNIT = """\
# Written by `veiltab agent unit`.  Save it as /etc/systemd/system/veiltab-agent.service, then:
#   systemctl daemon-reload && systemctl enable --now veiltab-agent

[Unit]
Description=veiltab agent: answers signed studies within {policy}
Wants=network-online.target
After=network-online.target

[Service]
Type=exec
User={user}
ExecStart={command}
Restart=on-failure
RestartSec=60
TimeoutStopSec=60
{credential}
# polars would look at the processor with code that it writes into memory, which is denied below.
Environment=POLARS_SKIP_CPU_CHECK=1

# Keys stay out of core dumps, and what is in memory when they are read stays out of swap.
LimitCORE=0
LimitMEMLOCK=infinity

# It writes to its home and nowhere else.
ProtectSystem=strict
ProtectHome=read-only
ReadWritePaths={home}
PrivateTmp=yes
PrivateDevices=yes
UMask=0077

# It needs the network, and no other right.
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
RemoveIPC=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
"""

CREDENTIAL = "passphrase"


@dataclass(frozen=True, slots=True)
class AgentUnit:
    """What a unit says of one agent.

    ``passphrase`` is a file that only root can read; systemd hands it to the agent as a credential.
    """

    program: tuple[str, ...]
    home: Path
    policy: Path
    user: str
    passphrase: Path | None

    def text(self) -> str:
        """Return the unit."""
        words = [*self.program, "agent", "run", "--home", str(self.home)]
        words += ["--policy", str(self.policy)]
        command, credential = " ".join(map(_quoted, words)), ""
        if self.passphrase is not None:
            command += f" --passphrase-file %d/{CREDENTIAL}"
            credential = f"LoadCredential={CREDENTIAL}:{_escaped(str(self.passphrase))}\n"
        return _UNIT.format(
            command=command,
            credential=credential,
            home=_quoted(str(self.home)),
            policy=_escaped(str(self.policy)),
            user=self.user,
        )


def _escaped(text: str) -> str:
    return text.replace("%", "%%")


def _quoted(word: str) -> str:
    """Write one word of a command as systemd reads it."""
    escaped = _escaped(word).replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return f'"{escaped}"' if any(c in word for c in " \t\"'\\$;") else escaped
