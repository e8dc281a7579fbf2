"""Prints the names of all codes as a part of a page; `make docs` puts it below remoting-protocol.md in the site."""

from protocol.codes import RequestCode, ResponseCode


def code_reference() -> str:
    """Numbers and names of requests, then of responses."""
    lines = [" · ".join(f"{code.value} {code.name}" for code in codes) for codes in (RequestCode, ResponseCode)]
    return f"\n{lines[0]}\n\n**Responses**: {lines[1]}\n"


if __name__ == "__main__":
    print(code_reference(), end="")
