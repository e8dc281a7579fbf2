"""Refuse a filter that chooses messages by what a mask hides of them."""

from protocol.mask import Mask
from storage.filter.sql92 import parse
from storage.filter.tag import parse_tag_expression


def refuse_hidden(mask: Mask, tag: str | None, where: str | None) -> None:
    """Raise ConfigError for a tag expression or SQL92 over what is hidden; FilterSyntaxError for one that is wrong."""
    tags = parse_tag_expression(tag)
    if not tags.matches_everything:
        for each in tags.tags:
            mask.refuse_value("tags", each)
    if where is not None:
        mask.refuse_expression(parse(where).names)
