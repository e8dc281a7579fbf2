"""Certificates for tests, made with the openssl command when first asked for."""

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


@dataclass(frozen=True)
class Authority:
    folder: Path
    name: str = "ca"

    @classmethod
    def make(cls, folder: Path, name: str = "ca") -> "Authority":
        folder.mkdir(exist_ok=True)
        run = ["req", "-x509", *NEW_KEY, "-nodes", "-days", "3650", "-subj", f"/CN={name}"]
        run += ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]  # Python 3.13 asks for it
        _openssl(folder, *run, "-keyout", f"{name}.key", "-out", f"{name}.pem")
        return cls(folder, name)

    @property
    def certificate(self) -> Path:
        return self.folder / f"{self.name}.pem"

    def sign(self, name: str, password: str = "") -> tuple[Path, Path]:
        """Certificate and key for a name, valid for 127.0.0.1 and localhost too; the key is locked with a password."""
        key, request, certificate = f"{name}.key", f"{name}.csr", f"{name}.pem"
        locked = ["-passout", f"pass:{password}"] if password else ["-nodes"]
        new = ["req", "-new", *NEW_KEY, "-subj", f"/CN={name}", "-keyout", key, "-out", request]
        _openssl(self.folder, *new, *locked)
        (self.folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\nauthorityKeyIdentifier=keyid\n")
        sign = ["x509", "-req", "-days", "3650", "-in", request, "-out", certificate, "-extfile", "names"]
        ours = ["-CA", f"{self.name}.pem", "-CAkey", f"{self.name}.key", "-CAcreateserial"]
        _openssl(self.folder, *sign, *ours)
        return self.folder / certificate, self.folder / key

    def client_context(self, own: tuple[Path, Path] | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.certificate))
        if own is not None:
            context.load_cert_chain(*own)
        return context


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=60)
