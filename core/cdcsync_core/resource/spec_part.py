"""What the parts of the resource are made of: a frozen model that refuses unknown fields, and its
scalar types.

Why it is right: scalars are strict (a quoted number is not a number, `on` is not true), and every
text has a bound, as the API server wants it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer
from pydantic.alias_generators import to_camel

from cdcsync_core.resource.quantity import parse_cpu, parse_seconds, parse_size, show_cpu

Text = Annotated[str, Field(strict=True, max_length=1024)]
Flag = Annotated[bool, Field(strict=True)]
Whole = Annotated[int, Field(strict=True)]
Size = Annotated[int, BeforeValidator(parse_size)]
#: in thousandths
Cpu = Annotated[int, BeforeValidator(parse_cpu), PlainSerializer(show_cpu, return_type=str)]
Seconds = Annotated[float, BeforeValidator(parse_seconds)]
DnsLabel = Annotated[str, Field(strict=True, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]
SecretKey = Annotated[str, Field(strict=True, pattern=r"^[-._a-zA-Z0-9]+$", max_length=253)]
SecretName = Annotated[str, Field(strict=True, pattern=r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$", max_length=253)]
TableName = Annotated[str, Field(strict=True, pattern=r"(?s)^.+\..+$", max_length=129)]
#: the letters of names and addresses: no user, no escape, nothing that two parsers read differently
_NAME, _ADDRESS = "[A-Za-z0-9._-]+", "[0-9A-Fa-f:.]+"
Host = Annotated[str, Field(strict=True, pattern=rf"^({_NAME}|{_ADDRESS})$", max_length=253)]
#: a host and a port in a URL
AUTHORITY = rf"({_NAME}|\[{_ADDRESS}\])(:[0-9]{{1,5}})?"
#: a server by HTTP, as far as its path
URL = rf"https?://{AUTHORITY}(/[A-Za-z0-9._~%!$&()*+,;=:@/-]*)?"


def check_url(url: str) -> str:
    """An empty one, which stands for another, has no host to be wrong. Raises ValueError."""
    try:
        parts = urlsplit(url)
        if not url or (parts.hostname and parts.port != 0):
            return url
    except ValueError:
        pass
    raise ValueError(f"a host, and a port up to 65535: not {url}")


Url = Annotated[str, Field(strict=True, pattern=f"^{URL}$", max_length=2048), AfterValidator(check_url)]
OptionalUrl = Annotated[str, Field(strict=True, pattern=f"^({URL})?$", max_length=2048), AfterValidator(check_url)]


class Part(BaseModel):
    """A frozen piece of the resource: camelCase in YAML, snake_case in Python, no unknown field."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=False)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Leaves out what was derived from the fields of the original."""
        copy = super().model_copy(update=update, deep=deep)
        for name in copy.__dict__.keys() - type(self).model_fields.keys():
            del copy.__dict__[name]
        return copy


def in_quotes(config: Any) -> Any:
    """A number or a truth value is another type in YAML."""
    for name, value in config.items() if isinstance(config, dict) else ():
        if isinstance(value, int | float):
            shown = str(value).lower() if isinstance(value, bool) else value
            raise ValueError(f'a text: write {name}: "{shown}", in quotes')
    return config
