"""Removes secrets from the configuration that run.json holds, because that file is shared."""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

REDACTED = "***"
"""The text that replaces a secret."""
_ALWAYS_SECRET = frozenset({"password", "passwd", "passphrase", "pwd", "secret", "credential"})
"""Words of a name whose value is a secret, whatever its type. Their plurals are, too."""
_SECRET_TEXT = _ALWAYS_SECRET.union(
    ("token", "key", "apikey", "auth", "authorization", "bearer", "cookie"),
    ("sig", "signature", "passcode", "jwt", "dsn", "webhook"),
)
"""Words of a name whose value is a secret if it is text. ``pad_token_id`` is a number."""
_NAMED_IN_PROSE = _ALWAYS_SECRET | {"apikey", "authorization", "cookie", "jwt"}
"""Words of a name that precedes a secret in free text, where ``key`` and ``token`` are words."""
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_COMPOUND = re.compile(
    r"(?:pass(?:word|wd|phrase|code)s?|secrets?|credentials?"
    r"|(?:api|access|secret|private|ssh|encryption|signing|account|master|auth)keys?"
    r"|(?:hf|hub|api|auth|access|bearer|refresh|session)tokens?)$"
)
"""The end of a name without its separators, such as ``dbpassword``: its value is a secret."""
_SPECIAL_TOKEN = re.compile(r"[<\[].{0,40}[>\]]")
"""A special token of a tokenizer, such as ``<pad>`` under ``pad_token``, which is no secret."""
_SPECIAL_TOKEN_NAME = re.compile(
    r"(?:pad|bos|eos|boi|eoi|unk|sep|cls|mask|image|video|audio)_token", re.IGNORECASE
)
"""Names of special tokens, whose text may be of any shape."""
# Each pattern begins where a word does. Otherwise a long text of letters would take hours.
_USER_IN_URL = re.compile(
    r"(?P<scheme>(?<![a-z0-9+.-])[a-z][a-z0-9+.-]*://)"
    # A password may hold a slash; a port is not a password.
    r"(?:[^/?#\s]*@|[^/?#\s:@]{0,99}:(?!\d+(?:[/?#\s]|$))[^\s@]{0,199}@)",
    re.IGNORECASE,
)
_PARAMETER = re.compile(
    r"(?P<name>(?<![\w.%-])[\w.%-]+)=(?P<value>[0-9]{1,6}(?=[,)]|$)|[^&;#\s\"']+)"
)
"""``name=value`` in a URL's query, a connection string, a command line or a technique's label."""
_SMALL_NUMBER = re.compile(r"[0-9]{1,6}")
"""The value of a parameter such as ``num_virtual_tokens=8``, which is a count and no secret."""
_QUOTED = re.compile(
    r"(?P<name>(?<![\w.-])[\w.-]+[\"']?\s{0,4}[:=]\s{0,4}(?P<quote>[\"']))"
    r"(?P<value>[^\"'\n]+)(?P=quote)"
)
"""``name='value'``, and ``"name": "value"`` in JSON that is a text."""
_LINE = re.compile(r"(?P<name>(?<![\w.-])[\w.-]+\s{0,4}[:=][ \t]{1,4})(?P<value>\S[^\n]*)")
"""``name: value``, as in a header of HTTP: the value goes to the end of the line."""
_OPTION = re.compile(r"(?P<name>(?<![\w-])--[\w-]+)\s+(?P<value>[^\s-]\S*)")
_KNOWN_TOKENS = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|gh[oprsu]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
    r"|sk-[\w-]{20,}|xox[abprs]-[\w-]{10,}|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[\w-]{30,}"
    r"|ya29\.[\w-]{20,}|npm_[A-Za-z0-9]{30,}|pypi-[\w-]{30,}|nvapi-[\w-]{30,}|dapi[0-9a-f]{32}"
    r"|gsk_[A-Za-z0-9]{30,}|r8_[A-Za-z0-9]{30,}|[rs]k_live_\w{16,}|SG\.[\w-]{16,}\.[\w-]{16,}"
    r"|(?<=hooks\.slack\.com/services/)[\w/]{10,}"
    r"|(?<![\w-])eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*)"
)
"""The shapes of tokens of Hugging Face, GitHub, GitLab, OpenAI, Slack, AWS, Google, npm, PyPI,
NVIDIA, Databricks, Groq, Replicate, Stripe, SendGrid, and JWTs."""
_PRIVATE_KEY = re.compile(
    r"(?P<kind>-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----).*?(?:-----END [A-Z ]{0,30}KEY-----|\Z)",
    re.DOTALL,
)
_BEARER = re.compile(r"(?P<kind>\b(?:Bearer|Basic)\s+)[\w.+/=~-]{8,}", re.IGNORECASE)


def redacted(value: Any, name: str = "") -> Any:
    """Plain JSON values with every secret replaced, at any depth: texts under a name such as
    ``api_key``, users in URLs, signatures in queries, and what looks like a known service's token.
    """
    if isinstance(value, Mapping):
        return {
            _redacted_key(key): redacted(item, _name_inside(name, str(key)))
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [redacted(item, name) for item in value]
    if isinstance(value, str):
        is_special = _SPECIAL_TOKEN.fullmatch(value) or _SPECIAL_TOKEN_NAME.fullmatch(name)
        if _is_secret(name, _SECRET_TEXT) and value and not is_special:
            return REDACTED
        return _redacted_text(value)
    if value is not None and not isinstance(value, bool) and _is_secret(name, _ALWAYS_SECRET):
        return REDACTED
    return value


def names_a_user(text: str) -> bool:
    """Whether a URL in the text has a user or a password before its host."""
    return _USER_IN_URL.search(text) is not None


def secret_paths(
    value: Any, at: tuple[str | int, ...] = (), name: str = ""
) -> Iterator[tuple[str | int, ...]]:
    """Where ``redacted`` would replace something: keys and list positions from ``value`` on. A key
    that is itself a secret is not named, only the mapping that holds it."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if _redacted_key(key) != key:
                yield at
            else:
                yield from secret_paths(item, (*at, key), _name_inside(name, str(key)))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from secret_paths(item, (*at, index), name)
    # NaN does not equal itself, though ``redacted`` leaves it as it is.
    elif (replacement := redacted(value, name)) is not value and replacement != value:
        yield at


def _name_inside(name: str, key: str) -> str:
    """The name to judge a nested value by: everything below a secret's name is secret."""
    return name if _is_secret(name, _SECRET_TEXT) else key


def _is_secret(name: str, words: frozenset[str]) -> bool:
    """Whether one of the name's words is in ``words``. ``dbPassword`` has two words."""
    # Full-width letters are letters, too.
    found = [word.lower() for word in _WORDS.findall(unicodedata.normalize("NFKC", name))]
    if any(word in words or word.removesuffix("s") in words for word in found):
        return True
    return _COMPOUND.search("".join(found[-4:])) is not None


def _redacted_key(key: Any) -> Any:
    return _redacted_text(key) if isinstance(key, str) else key


def _redacted_text(text: str) -> str:
    text = _PRIVATE_KEY.sub(rf"\g<kind>{REDACTED}", text)
    text = _USER_IN_URL.sub(rf"\g<scheme>{REDACTED}@", text)
    for pattern in (_QUOTED, _LINE, _PARAMETER, _OPTION):
        text = pattern.sub(_redacted_named, text)
    text = _BEARER.sub(rf"\g<kind>{REDACTED}", text)
    return _KNOWN_TOKENS.sub(REDACTED, text)


def _redacted_named(match: re.Match[str]) -> str:
    value = match["value"]
    words = _SECRET_TEXT
    if match.re in (_QUOTED, _LINE):
        words = _NAMED_IN_PROSE
    elif _SMALL_NUMBER.fullmatch(value):
        words = _ALWAYS_SECRET
    is_special = match.re is _QUOTED and _SPECIAL_TOKEN.fullmatch(value)
    if is_special or not _is_secret(unquote(match["name"]), words):
        return match[0]
    at = match.start("value") - match.start()
    return f"{match[0][:at]}{REDACTED}{match[0][at + len(value) :]}"
